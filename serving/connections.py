"""The connections of the server: how many there are, and how long they wait.

A connection either waits for its client (for the head or the body of a request,
for the next request, or until an answer was taken) or the server works for it.
Waiting has a deadline. While there are as many connections as the limit, each
new one ends the one that has waited longest: connections that do nothing keep
nobody out, and the process does not run out of descriptors.
"""

import asyncio
import dataclasses
import logging as std_logging
import os
import resource
import socket
import time
from collections.abc import Sequence
from typing import Any

import aiohttp
from absl import logging
from aiohttp import web

from foundation import errors

HEAD, BODY, ANSWER, IDLE = "head", "body", "answer", "idle"
_MOST = 4096  # By default.
_RESERVED = 32  # Descriptors for files.
_FEWEST = 8
_AT_ONCE = 16  # Connections that are accepted before others get their turn.
_RETRY_SECONDS = 0.01  # While the server works for all connections.
_NO_DESCRIPTORS_SECONDS = 1.0
_REPEATS, _REPEATS_SECONDS = 5, 60.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What the server accepts, and how long it waits.

    Each is the value of the flag of serve.py of the same name.
    """

    max_request_bytes: int = 1 << 20
    max_request_rows: int = 4096
    max_response_values: int = 1 << 25
    max_pending_requests: int = 256
    max_body_bytes: int = 1 << 28
    max_connections: int | None = None
    receive_timeout: float = 20.0
    idle_timeout: float = 75.0
    request_timeout: float = 60.0
    shutdown_timeout: float = 30.0


DEFAULTS = Limits()


class BodyInterrupted(asyncio.TimeoutError):
    """Raised where a body is read that takes too long or too much memory.

    Attributes:
      status: the HTTP status of the answer.
    """

    def __init__(self, status: int, line: str):
        """Raises with a line for the client."""
        super().__init__(line)
        self.status = status


class Connection(web.RequestHandler):
    """A connection of aiohttp that knows what it waits for.

    Attributes:
      waits_for: one of the constants above; None while the server works.
      since: when it began to wait, in the loop's time.
    """

    def __init__(self, *values: Any, **named: Any):
        """Takes the arguments of aiohttp's class."""
        super().__init__(*values, **named)
        self._wait_for(HEAD)
        self._content: aiohttp.StreamReader | None = None
        # aiohttp forgets its own before all bytes are sent.
        self._socket: asyncio.WriteTransport | None = None

    def _wait_for(self, what: str | None) -> None:
        self.waits_for, self.since = what, self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins to wait for a request."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._socket = transport
        super().connection_made(transport)
        self._wait_for(HEAD)

    def data_received(self, data: bytes) -> None:
        """Takes bytes; the first ones of a request begin a deadline."""
        if self.waits_for == IDLE:
            self._wait_for(HEAD)
        super().data_received(data)

    @property
    def neighbours(self) -> list["Connection"]:
        """All connections of the server, this one included."""
        return of_server(self._manager) if self._manager else [self]

    def begin_request(self, request: web.BaseRequest) -> None:
        """Must be called when the head of a request is complete."""
        self._content = request.content
        self._wait_for(None if request.content.is_eof() else BODY)

    def end_body(self) -> None:
        """Must be called when the body of a request is complete."""
        self._wait_for(None)

    async def finish_response(self, *values: Any) -> Any:
        """Sends an answer."""
        self._wait_for(ANSWER)
        try:
            return await super().finish_response(*values)
        finally:
            self._wait_for(IDLE)

    def interrupt_body(self, status: int, line: str) -> None:
        """Answers a request whose body is not complete."""
        self._wait_for(None)
        assert self._content is not None  # The body belongs to a request.
        self._content.set_exception(BodyInterrupted(status, line))

    def abort(self) -> None:
        """Ends the connection, whatever there is to be sent."""
        if self._socket is not None:
            self._socket.abort()


def of_server(server: web.Server) -> list[Connection]:
    """Returns the open connections of a server that makes only this class."""
    return [x for x in server.connections if isinstance(x, Connection)]


def longest_waiting(
    connections: Sequence[Connection], *waits_for: str
) -> Connection | None:
    """Returns the connection that has waited longest.

    Args:
      connections: the connections of a server.
      *waits_for: what it may wait for: HEAD, BODY, ANSWER, IDLE.
    """
    waiting = [x for x in connections if x.waits_for in waits_for]
    return min(waiting, key=lambda x: x.since, default=None)


class Listener:
    """Accepts connections, and ends those that wait for too long.

    asyncio's own loop accepts a thousand connections before the first of them
    can be closed, and writes a traceback for each that finds no descriptor.
    """

    def __init__(self, server: web.Server, limits: Limits, most: int):
        """Listens to nothing yet.

        Args:
          server: makes objects of Connection.
          limits: how long connections may wait.
          most: the most connections at the same time; see `max_connections`.
        """
        self._server, self._most = server, most
        self._deadlines = {
            HEAD: limits.receive_timeout,
            BODY: limits.receive_timeout,
            ANSWER: limits.request_timeout,
            IDLE: limits.idle_timeout,
        }
        self._sockets: list[socket.socket] = []
        self._opening: set[asyncio.Task] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._sweeping: asyncio.Task | None = None

    @property
    def port(self) -> int:
        """The port that is listened to."""
        return self._sockets[0].getsockname()[1]

    async def start(self, host: str, port: int) -> None:
        """Begins to listen; raises OSError if the address cannot be used."""
        loop = asyncio.get_running_loop()
        bound = await loop.create_server(
            self._server, host or None, port, start_serving=False
        )
        self._sockets = [x.dup() for x in bound.sockets]
        bound.close()
        for each in self._sockets:
            each.setblocking(False)
            each.listen(1024)
            loop.add_reader(each, self._accept, each)
        self._sweeping = loop.create_task(self._sweep())

    def stop(self) -> None:
        """Listens no more. Connections still have their deadlines."""
        for timer in self._timers:
            timer.cancel()
        for each in self._sockets:
            asyncio.get_running_loop().remove_reader(each)
            each.close()
        self._sockets.clear()

    def close(self) -> None:
        """Ends the deadlines, too."""
        self.stop()
        if self._sweeping is not None:
            self._sweeping.cancel()

    def _accept(self, listening: socket.socket) -> None:
        """Accepts some of the connections that wait to be accepted."""
        loop = asyncio.get_running_loop()
        for _ in range(_AT_ONCE):
            open_ = of_server(self._server)
            if len(open_) + len(self._opening) >= self._most:
                waiting = longest_waiting(open_, HEAD, BODY, ANSWER, IDLE)
                if waiting is None:
                    self._pause(listening, _RETRY_SECONDS)
                else:
                    # Its descriptor is free when this is called again.
                    waiting.abort()
                    logging.warning(
                        "%d connections are open (--max_connections): ended "
                        "one that waited for %.1f s",
                        len(open_),
                        loop.time() - waiting.since,
                    )
                return
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                logging.error("no connection is accepted: %s", error.strerror)
                self._pause(listening, _NO_DESCRIPTORS_SECONDS)
                return
            accepted.setblocking(False)
            task = loop.create_task(self._open(accepted))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, accepted: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._server, accepted
            )
        except OSError:
            accepted.close()

    def _pause(self, listening: socket.socket, seconds: float) -> None:
        """Accepts nothing for some time."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)

        def resume() -> None:
            self._timers.discard(timer)
            loop.add_reader(listening, self._accept, listening)

        timer = loop.call_later(seconds, resume)
        self._timers.add(timer)

    async def _sweep(self) -> None:
        """Ends connections whose deadline is over."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(1.0, self._deadlines[HEAD] / 4))
            for connection in of_server(self._server):
                if connection.waits_for is None:
                    continue
                seconds = self._deadlines[connection.waits_for]
                if loop.time() - connection.since <= seconds:
                    continue
                if connection.waits_for == BODY:
                    line = f"the body did not arrive within {seconds:g} seconds"
                    connection.interrupt_body(408, line)
                else:
                    connection.abort()


class RepeatedLines(std_logging.Filter):
    """Lets a few of equal warnings and errors pass in each minute."""

    def __init__(self) -> None:
        """Has seen nothing."""
        super().__init__()
        self._seen: dict[Any, tuple[float, int]] = {}

    def filter(self, record: std_logging.LogRecord) -> bool:
        """Returns whether a record is written; says what was left out."""
        if record.levelno < std_logging.WARNING:
            return True
        key = record.name, record.pathname, record.lineno, record.msg
        now = time.monotonic()
        since, count = self._seen.get(key, (now, 0))
        if now - since > _REPEATS_SECONDS:
            if count > _REPEATS and isinstance(record.msg, str):
                left_out = f" (and {count - _REPEATS} such lines before)"
                record.msg += left_out.replace("%", "%%")
            since, count = now, 0
        if len(self._seen) > 1000:
            self._seen.clear()
        self._seen[key] = since, count + 1
        return count < _REPEATS


def max_connections(given: int | None = None) -> int:
    """Returns how many connections the process has descriptors for.

    Args:
      given: the value of --max_connections; None for as many as there are
        descriptors, at most 4,096.

    Raises:
      InputError: there are fewer.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return given or _MOST
    try:
        used = len(os.listdir("/proc/self/fd"))
    except OSError:
        used = _RESERVED
    free = limit - used - _RESERVED
    if free < (given or _FEWEST):
        flag = f"--max_connections={given}: " if given else ""
        raise errors.InputError(
            f"{flag}the process may open {limit} files, enough for "
            f"{max(0, free)} connections; raise the limit with ulimit -n"
        )
    return given or min(free, _MOST)
