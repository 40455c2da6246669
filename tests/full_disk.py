"""A disk on which files cannot grow, for tests of failed writes."""

import contextlib
import resource


@contextlib.contextmanager
def longest_file(size):
    """Lets writes of this process fail (EFBIG) that make a file longer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
