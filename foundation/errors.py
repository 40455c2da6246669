"""The one exception that means "the user can mend this".

Every room may raise it; `foundation.config_flags.run` prints its message as one
line and exits with code 2. Any other exception is a defect of this project and
keeps its traceback.
"""


class InputError(ValueError):
    """Reports bad input in one line that names the flag, file or record.

    The message is complete in itself: a person who reads nothing else knows
    what to change, e.g. "--vocab_file=vocab.txt: no [MASK] among its 9 lines".
    """
