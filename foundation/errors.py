"""InputError, for errors that the user can correct, and warnings.

`config_flags.run` prints the error's message as one line and exits with code 2.
Other exceptions are defects of this project and keep their traceback.
"""

import functools

from absl import logging


class InputError(ValueError):
    """Reports bad input in one line that names the flag, file or record.

    The message alone tells what to change, e.g.
    "--vocab_file=vocab.txt: no [MASK] among its 9 lines".
    """


@functools.cache
def warn_once(message: str) -> None:
    """Logs a warning; the same message is logged only once."""
    logging.warning("%s", message)
