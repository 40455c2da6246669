"""Hides the notices of TensorFlow's C++ runtime, which are not for users.

On a machine without a GPU even its error level is noise; what really fails
raises. Import this before anything that imports TensorFlow, which reads the
variable when it is loaded. TF_CPP_MIN_LOG_LEVEL=0 shows everything, e.g. why a
GPU is not found.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
