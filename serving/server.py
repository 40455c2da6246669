"""Serves exported models over HTTP, with TensorFlow Serving's REST API.

    POST /v1/models/NAME:predict        predictions; see rest_format
    GET  /v1/models                     the models, each with its status
    GET  /v1/models/NAME                status
    GET  /v1/models/NAME/metadata       signatures
    GET  /                              a page on which to try the models
    GET  /healthz                       200, or 503 while the server ends
    GET  /metrics                       in the format of Prometheus

NAME may be followed by /versions/N. An error is {"error": "one line"}.

On SIGTERM the server answers the requests that it has accepted: it stops
listening, its responses close their connections, and it ends when no request is
left and open connections had time to send one more.
"""

import asyncio
import dataclasses
import functools
import ipaddress
import logging as std_logging
import pathlib
import re
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

import jinja2
import prometheus_client
from absl import logging
from aiohttp import hdrs, http_exceptions, web

from foundation import config_flags, errors
from serving import rest_format, servable, served_model, versions

field = config_flags.field
_PAGE = pathlib.Path(__file__).with_name("page.html")
_MODEL = r"/v1/models/{name:[\w.-]+}{version:(/versions/\d+)?}"
_ADDRESSES = (
    "GET /v1/models lists the models, POST /v1/models/NAME:predict predicts"
)
# The page contains its style and script, and reads only from this server.
_PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline';"
    " connect-src 'self'; img-src data:"
)
# Of every response: a browser neither guesses its type nor keeps it.
_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
_ANY = "*"
_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
# Either takes less than a millisecond to read or to write.
_LONG_REQUEST_BYTES, _MANY_VALUES = 1 << 14, 1 << 12
# The logits of 512 tokens over 30,522 words are 15,627,264 numbers.
_MOST_VALUES = 1 << 25
_IDLE_SECONDS = 75.0  # Until a connection without a request is closed.
_SHUTDOWN_SECONDS = 30.0  # For requests that are accepted, after SIGTERM.
_LAST_REQUESTS_SECONDS = 1.0  # For open connections after SIGTERM.
_T = TypeVar("_T")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What the server accepts, and how long it waits."""

    max_request_bytes: int = field(
        "Longer requests get status 413.", 1 << 20, at_least=1
    )
    max_pending_requests: int = field(
        "Requests that are answered at the same time; further ones get status "
        "503.",
        256,
        at_least=1,
    )
    request_timeout: float = field(
        "Seconds after which a request gets status 504; a computation that has "
        "begun continues to its end.",
        60.0,
        above=0,
    )


class Server:
    """The HTTP side of loaded models.

    Attributes:
      app: the aiohttp application, with its routes.
    """

    def __init__(
        self,
        servables: Mapping[str, servable.Servable],
        limits: Limits = Limits(),
        allowed_hosts: Collection[str] = (_ANY,),
        cors_origins: Collection[str] = (),
    ):
        """Makes the application, which does not listen yet.

        Args:
          servables: name -> model.
          limits: what is accepted, and how long the server waits.
          allowed_hosts: the names that the header Host may have, in lower case
            and without brackets; see `accepted_hosts`, which makes them.
          cors_origins: the origins of pages of other servers that may read the
            answers, such as https://example.com; "*" is any.
        """
        self._servables, self._limits = servables, limits
        self._hosts, self._origins = allowed_hosts, cors_origins
        self._is_ending = False
        self._num_requests = self._num_computed = 0
        self.app = web.Application(
            middlewares=[self._answer], client_max_size=limits.max_request_bytes
        )
        self.app.add_routes(
            [
                web.get("/", self._page),
                web.get("/healthz", self._health),
                web.get("/metrics", self._show_metrics),
                web.get("/v1/models", self._models),
                web.post(_MODEL + ":predict", self._predict),
                web.get(_MODEL, self._status),
                web.get(_MODEL + "/metadata", self._metadata),
            ]
        )
        self._registry = registry = prometheus_client.CollectorRegistry()
        self._requests = prometheus_client.Counter(
            "bert_requests", "Requests.", ["model", "status"], registry=registry
        )
        self._seconds = prometheus_client.Histogram(
            "bert_request_seconds",
            "Time from a request's headers to its answer.",
            ["model"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._rows = prometheus_client.Counter(
            "bert_rows", "Rows predicted.", ["model"], registry=registry
        )
        batches = prometheus_client.Gauge(
            "bert_batches_total",
            "Batches that were computed; rows per batch show how well requests "
            "are batched.",
            ["model"],
            registry=registry,
        )
        for name in self._servables:
            batches.labels(name).set_function(
                functools.partial(
                    lambda x: self._servables[x].num_batches, name
                )
            )
        prometheus_client.Gauge(
            "bert_pending_requests",
            "Requests without an answer.",
            registry=registry,
        ).set_function(lambda: self._num_requests)
        prometheus_client.ProcessCollector(registry=registry)

    async def run(
        self, listener: socket.socket, watch: versions.Watch | None = None
    ) -> None:
        """Serves until SIGTERM or SIGINT.

        Args:
          listener: a socket that is bound to an address; see `bind`.
          watch: what puts new versions into the models.
        """
        loop, ends = asyncio.get_running_loop(), asyncio.Event()
        signals = signal.SIGTERM, signal.SIGINT
        for number in signals:
            loop.add_signal_handler(number, ends.set)
        # aiohttp answers bytes that are not HTTP with status 400, and logs a
        # traceback for each.
        std_logging.getLogger("aiohttp.server").addFilter(
            lambda record: (
                not isinstance(
                    (record.exc_info or (None, None))[1],
                    http_exceptions.BadHttpMessage,
                )
            )
        )
        runner = web.AppRunner(
            self.app,
            access_log=None,
            keepalive_timeout=_IDLE_SECONDS,
            shutdown_timeout=_SHUTDOWN_SECONDS,
        )
        await runner.setup()
        site = web.SockSite(runner, listener)
        await site.start()
        logging.info("serving at %s/", site.name)
        watching = asyncio.ensure_future(watch.run() if watch else ends.wait())
        await ends.wait()
        watching.cancel()
        logging.info("ending: %d requests are pending", self._num_requests)
        for number in signals:
            loop.remove_signal_handler(number)  # The next one ends at once.
        self._is_ending = True
        await site.stop()
        if runner.server and runner.server.connections:
            await asyncio.sleep(_LAST_REQUESTS_SECONDS)
        await runner.cleanup()  # Waits for the answers.
        logging.info("ended: %d requests are pending", self._num_requests)

    @web.middleware
    async def _answer(
        self, request: web.Request, handler: _Handler
    ) -> web.StreamResponse:
        """Answers every request, errors in TensorFlow Serving's form."""
        started = time.monotonic()
        self._num_requests += 1
        try:
            self._check_host(request)
            response = self._preflight(request) or await handler(request)
        except web.HTTPException as error:
            line = error.reason
            if error.status == 413:
                line = error.text or line
            elif error is request.match_info.http_exception:  # Of no address.
                allowed = error.headers.get("Allow")
                line = f"{line}: {_ADDRESSES}"
                line += f"; allowed: {allowed}" if allowed else ""
            response = _error(error.status, line)
        except errors.InputError as error:
            response = _error(400, str(error))
        except (web.RequestPayloadError, ConnectionResetError):
            response = _error(400, "the body of the request cannot be read")
        except asyncio.TimeoutError:
            seconds = self._limits.request_timeout
            response = _error(504, f"not answered within {seconds:g} seconds")
        except Exception:
            logging.exception("%s %s", request.method, request.path)
            response = _error(500, "internal error; see the server's log")
        finally:
            self._num_requests -= 1
        response.headers.update(_HEADERS)
        if self._origins:
            response.headers["Vary"] = "Origin"
        if self._is_cors_origin(request):
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = (
                request.headers["Origin"]
            )
        if self._is_ending:
            response.force_close()
        name = request.match_info.get("name", "")
        name = name if name in self._servables else ""
        self._requests.labels(name, str(response.status)).inc()
        self._seconds.labels(name).observe(time.monotonic() - started)
        return response

    def _check_host(self, request: web.Request) -> None:
        """Refuses names of other servers in the header Host.

        A page of another server, whose name was made to lead to this address,
        would otherwise read the answers (DNS rebinding). Browsers always send
        the header.
        """
        host = request.headers.get("Host")
        if host is None or _ANY in self._hosts:
            return
        if re.sub(r":\d*$", "", host.lower()).strip("[]") not in self._hosts:
            raise web.HTTPForbidden(
                reason=f"the host {host} is not one of --allowed_hosts; behind "
                "a reverse proxy, add the name to this flag"
            )

    def _is_cors_origin(self, request: web.Request) -> bool:
        """Returns whether a page of --cors_origins sent the request."""
        origin = request.headers.get("Origin")
        return origin is not None and bool({origin, _ANY} & {*self._origins})

    def _preflight(self, request: web.Request) -> web.Response | None:
        """Answers a browser that asks whether a page may send a request."""
        if (
            request.method != "OPTIONS"
            or "Access-Control-Request-Method" not in request.headers
            or not self._is_cors_origin(request)
        ):
            return None
        return web.Response(
            status=204,
            headers={
                "Access-Control-Allow-Methods": "GET, POST",
                "Access-Control-Allow-Headers": "Content-Type",
            },
        )

    def _servable(self, request: web.Request) -> servable.Servable:
        name = request.match_info["name"]
        version = request.match_info["version"].rpartition("/")[2]
        model = self._servables.get(name)
        if model is None:
            names = errors.listed(sorted(self._servables))
            raise web.HTTPNotFound(
                reason=f"there is no model {name}; this server has: {names}"
            )
        if version not in ("", str(model.version)):
            raise web.HTTPNotFound(
                reason=f"there is no version {version} of {name}; version "
                f"{model.version} is served (--models={name}=DIR,"
                f"old=DIR/{version} serves a folder DIR/{version} beside it)"
            )
        return model

    async def _predict(self, request: web.Request) -> web.Response:
        model = self._servable(request)
        with model.used():
            answer = await asyncio.wait_for(
                self._predictions(request, model), self._limits.request_timeout
            )
        return web.Response(body=answer, content_type="application/json")

    async def _predictions(
        self, request: web.Request, model: servable.Servable
    ) -> bytes:
        # A request whose body is not complete takes no place.
        body, most = await request.read(), self._limits.max_pending_requests
        if self._num_computed >= most:
            raise web.HTTPServiceUnavailable(
                reason=f"{most} requests are pending"
            )

        def read() -> tuple[rest_format.Request, list[servable.Part], int]:
            parsed = rest_format.parse(body, model.signatures)
            # Before the rows are divided, which loses their numbers.
            model.model.check(parsed.signature_name, parsed.inputs)
            signature = model.signatures[parsed.signature_name]
            num_values = signature.num_values(parsed.inputs)
            if num_values > _MOST_VALUES:
                raise errors.InputError(
                    f"the answer may have {num_values:,} values, more than "
                    f"{_MOST_VALUES:,}; send fewer or shorter rows"
                )
            return parsed, model.split(parsed.inputs), num_values

        self._num_computed += 1
        try:
            parsed, parts, num_values = await _call(
                read, is_long=len(body) > _LONG_REQUEST_BYTES
            )
            rows = await model.predict(parsed.signature_name, parts)
            self._rows.labels(model.name).inc(len(rows))
            write = functools.partial(
                rest_format.response,
                rows,
                model.signatures[parsed.signature_name].outputs,
                by_row=parsed.by_row,
            )
            return await _call(write, is_long=num_values > _MANY_VALUES)
        finally:
            self._num_computed -= 1

    async def _models(self, request: web.Request) -> web.Response:
        models = [
            {
                "name": name,
                "task": model.task,
                "model_version_status": model.versions,
            }
            for name, model in self._servables.items()
        ]
        return web.json_response({"models": models})

    async def _status(self, request: web.Request) -> web.Response:
        model, version = self._servable(request), request.match_info["version"]
        statuses = [
            status
            for status in model.versions
            if version in ("", f"/versions/{status['version']}")
        ]
        return web.json_response({"model_version_status": statuses})

    async def _metadata(self, request: web.Request) -> web.Response:
        model = self._servable(request)
        by_name = {k: x.metadata for k, x in model.signatures.items()}
        values = {
            "model_spec": {
                "name": model.name,
                "signature_name": "",
                "version": str(model.version),
            },
            "metadata": {"signature_def": {"signature_def": by_name}},
        }
        return web.json_response(values)

    async def _health(self, request: web.Request) -> web.Response:
        if self._is_ending:
            raise web.HTTPServiceUnavailable(reason="ending")
        return web.Response(text="ok\n")

    async def _show_metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=prometheus_client.generate_latest(self._registry),
            headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST},
        )

    async def _page(self, request: web.Request) -> web.Response:
        models = [
            {
                "name": name,
                "task": model.task,
                "inputs": list(
                    model.signatures[served_model.DEFAULT_SIGNATURE].inputs
                ),
            }
            for name, model in self._servables.items()
        ]
        page = _PAGE.read_text(encoding="utf-8")
        return web.Response(
            text=jinja2.Template(page, autoescape=True).render(models=models),
            content_type="text/html",
            headers={"Content-Security-Policy": _PAGE_POLICY},
        )


def bind(host: str, port: int) -> socket.socket:
    """Returns a socket that is bound to an address, and does not listen yet.

    So a port that is taken is noticed before models are loaded.

    Args:
      host: the value of --host; "" is all addresses.
      port: the value of --port; 0 for any free one.

    Raises:
      InputError: the address cannot be used; names both flags.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None,
            port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )[0]
        listener = socket.socket(family, kind, protocol)
        # A server that has ended leaves its port.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, UnicodeError) as error:
        raise errors.InputError(
            f"--host={host} --port={port}: {errors.reason(error)}; choose "
            "another --host or another --port, 0 for any free one"
        ) from error
    if not _is_local(host):
        logging.warning(
            "--host=%s: anyone in the network can reach the server, which has "
            "no authentication",
            host,
        )
    return listener


def accepted_hosts(
    host: str, given: Collection[str] | None = None
) -> frozenset[str]:
    """Returns the names that are accepted in the header Host.

    Args:
      host: the address to listen on.
      given: the value of --allowed_hosts; "*" is any name.

    Returns:
      `given`; without it, the names of a loopback address, and any name if
      others than this machine reach the address.
    """
    if given:
        return frozenset(name.lower() for name in given)
    if not _is_local(host):
        return frozenset([_ANY])
    return frozenset(["localhost", "127.0.0.1", "::1", host.lower()])


def _is_local(host: str) -> bool:
    """Returns whether only this machine reaches the address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def _call(function: Callable[[], _T], *, is_long: bool) -> _T:
    """Calls a function; a long one in a thread, so that others go on."""
    return await asyncio.to_thread(function) if is_long else function()


def _error(status: int, text: str) -> web.Response:
    """Returns an error in TensorFlow Serving's form, on one line."""
    return web.json_response({"error": " ".join(text.split())}, status=status)
