"""The exception for errors that the user can correct.

`config_flags.run` prints its message as one line and exits with code 2. Other
exceptions are defects of this project and keep their traceback.
"""


class InputError(ValueError):
    """Reports bad input in one line that names the flag, file or record.

    The message alone tells what to change, e.g.
    "--vocab_file=vocab.txt: no [MASK] among its 9 lines".
    """
