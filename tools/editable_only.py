"""The build backend of pyproject.toml: setuptools for `pip install -e .` only.

The project runs from its checkout. An installation that copies modules would
put names such as data and tasks into an environment, so it is refused in one
line, before pip downloads TensorFlow.
"""

import sys
from typing import Any, NoReturn

from setuptools import build_meta

get_requires_for_build_editable = build_meta.get_requires_for_build_editable
prepare_metadata_for_build_editable = (
    build_meta.prepare_metadata_for_build_editable
)
build_editable = build_meta.build_editable


def build_wheel(*arguments: Any, **settings: Any) -> NoReturn:
    """Ends pip with the line."""
    del arguments, settings
    # Blank lines, because pip prints more lines around it.
    sys.exit(
        "\nGive -e: `pip install -e .`, or with extras `pip install -e "
        "'.[gpu]'`. This project runs from its folder, which you keep.\n"
    )


get_requires_for_build_wheel = build_sdist = build_wheel
