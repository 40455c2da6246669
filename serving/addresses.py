"""The address that serve.py listens on, checked before models are loaded."""

import errno
import os
import socket

from foundation import errors

_REMEDIES = {
    errno.EADDRINUSE: "; another program listens there: choose another --port, "
    "or 0 for any free one",
    errno.EACCES: "; ports from 1024 on need no privileges",
}


def check_free(host: str, port: int) -> None:
    """Refuses a port that another program uses, or that is privileged.

    Other errors are left to the server, which may have further addresses.

    Args:
      host: the value of --host; an unknown one is left to the server, too.
      port: the value of --port; 0 for any free one.

    Raises:
      InputError: names both flags.
    """
    if not port:
        return
    try:
        infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)
    except OSError:
        return
    for family, kind, protocol, _, address in infos:
        try:
            with socket.socket(family, kind, protocol) as tried:
                # As asyncio does: a server that has ended leaves its port.
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind(address)
        except OSError as error:
            if error.errno in _REMEDIES:
                raise unusable(host, port, error) from error


def unusable(host: str, port: int, error: OSError) -> errors.InputError:
    """Returns the error about an address that cannot be listened on."""
    reason, remedy = error.strerror, ""
    if error.errno in _REMEDIES:
        reason, remedy = os.strerror(error.errno), _REMEDIES[error.errno]
    return errors.InputError(f"--host={host} --port={port}: {reason}{remedy}")
