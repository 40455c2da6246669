"""Hides the notices of TensorFlow's C++ runtime; errors still show.

Import it before anything that imports TensorFlow: the runtime reads the
variable when it is loaded. Whoever sets TF_CPP_MIN_LOG_LEVEL is obeyed.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
