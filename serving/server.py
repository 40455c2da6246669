"""Serves exported models over HTTP, with TensorFlow Serving's REST API.

    POST /v1/models/NAME:predict        predictions; see rest_format
    GET  /v1/models                     the models, each with its status
    GET  /v1/models/NAME                status
    GET  /v1/models/NAME/metadata       signatures
    GET  /                              a page on which to try the models
    GET  /healthz                       200, or 503 while the server ends
    GET  /metrics                       in the format of Prometheus

NAME may be followed by /versions/N. An error is {"error": "one line"}, also
where bytes are not HTTP.

On SIGTERM the server answers the requests that it has accepted: it stops
listening, its responses close their connections, and it ends when no request is
left and open connections had time to send one more.
"""

import asyncio
import functools
import ipaddress
import logging as std_logging
import pathlib
import re
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent import futures
from typing import Any, TypeVar

import jinja2
import prometheus_client
from absl import logging
from aiohttp import http_exceptions, web

from foundation import errors
from serving import (
    addresses,
    connections,
    rest_format,
    servable,
    served_model,
    versions,
)

_PAGE = pathlib.Path(__file__).with_name("page.html")
_MODELS = "/v1/models"
_VERSIONS = _MODELS + r"/{name:[\w.-]+}{version:(/versions/\d+)?}"
_ADDRESSES = (
    f"GET {_MODELS} lists the models, POST {_MODELS}/NAME:predict predicts"
)
# The page contains its style and script, and reads only from this server.
_PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline';"
    " connect-src 'self'; img-src data:"
)
# Of every response: a browser neither guesses its type nor keeps it.
_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
# Those that aiohttp decodes; br and zstd only if their packages are installed.
_ENCODINGS = ("", "identity", "gzip", "deflate", "br", "zstd")
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_ANY = "*"
_INTERNAL_ERROR = "internal error; see the server's log"
_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_THREADS = 8  # For long requests and answers.
# Either takes less than a millisecond to read or to write.
_LONG_REQUEST_BYTES, _MANY_VALUES = 1 << 14, 1 << 12
_LAST_REQUESTS_SECONDS = 1.0  # For open connections after SIGTERM.
_T = TypeVar("_T")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """The HTTP side of loaded models.

    Attributes:
      app: the aiohttp application, with its routes.
      port: the port that `run` listens to; None before.
    """

    def __init__(
        self,
        servables: Mapping[str, servable.Servable],
        limits: connections.Limits = connections.DEFAULTS,
        allowed_hosts: Collection[str] = (_ANY,),
        cors_origins: Collection[str] = (),
        watch: versions.Watch | None = None,
    ):
        """Makes the application, which does not listen yet.

        Args:
          servables: name -> model.
          limits: what is accepted, and how long the server waits.
          allowed_hosts: the names that the header Host may have; see
            `accepted_hosts`, which makes them.
          cors_origins: the origins of pages of other servers that may read the
            answers, such as https://example.com; "*" is any.
          watch: what puts new versions into `servables` while `run` serves.
        """
        self._servables, self._watch = servables, watch
        self._limits = limits
        self._allowed_hosts = allowed_hosts
        self._cors_origins = cors_origins
        self.port: int | None = None
        self._is_ending = False
        self._num_pending = self._num_places = self._body_bytes = 0
        self._pool = futures.ThreadPoolExecutor(
            _THREADS, thread_name_prefix="convert"
        )
        self._metrics = _Metrics(servables, lambda: self._num_pending)
        self.app = web.Application(
            middlewares=[self._answer],
            client_max_size=self._limits.max_request_bytes,
        )
        self.app.add_routes(
            [
                web.get("/", self._get_page),
                web.get("/healthz", self._get_health),
                web.get("/metrics", self._get_metrics),
                web.get(_MODELS, self._get_models),
                web.post(_VERSIONS + ":predict", self._predict),
                web.route(
                    "*",
                    _VERSIONS + ":{verb:classify|regress}",
                    self._refuse_verb,
                ),
                web.get(_VERSIONS, self._get_status),
                web.get(_VERSIONS + "/metadata", self._get_metadata),
            ]
        )
        self.app.on_response_prepare.append(self._add_headers)

    def make_runner(self, **options: Any) -> web.AppRunner:
        """Returns what runs the application; `options` are AppRunner's."""
        return _Runner(self.app, **options)

    async def run(self, host: str, port: int) -> None:
        """Serves until SIGTERM or SIGINT.

        Args:
          host: the address to listen on.
          port: the port; 0 for any free one, which is logged.

        Raises:
          InputError: the address cannot be used.
        """
        repeated = connections.RepeatedLines()
        handlers = list(std_logging.getLogger().handlers)
        for handler in handlers:
            handler.addFilter(repeated)
        try:
            await self._run(host, port)
        finally:
            for handler in handlers:
                handler.removeFilter(repeated)

    async def _run(self, host: str, port: int) -> None:
        most = connections.max_connections(self._limits.max_connections)
        loop, ends = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ends.set)
        logger = std_logging.getLogger("aiohttp.server")
        logger.addFilter(_is_no_bad_message)
        runner = self.make_runner(
            access_log=None,
            logger=logger,
            # cleanup() waits so long again, after _answer_last_requests; with
            # 0 it would wait without end.
            shutdown_timeout=1.0,
            # Connections have their own deadline; it is never longer.
            keepalive_timeout=self._limits.idle_timeout,
        )
        await runner.setup()
        http_server = runner.server
        assert http_server is not None  # setup() has made it.
        listener = connections.Listener(http_server, self._limits, most)
        try:
            await listener.start(host, port)
        except OSError as error:
            await runner.cleanup()
            raise addresses.unusable(host, port, error) from error
        if not _is_loopback(host):
            logging.warning(
                "--host=%s: anyone in the network can reach the server, which "
                "has no authentication",
                host,
            )
        self.port = listener.port
        shown = _with_brackets(host)
        for name, model in self._servables.items():
            logging.info("%s: %s", name, model.task or "a SavedModel")
        logging.info("serving at http://%s:%d/", shown, listener.port)
        watching = asyncio.ensure_future(
            self._watch.run() if self._watch else ends.wait()
        )
        await ends.wait()
        watching.cancel()
        logging.info("ending: %d requests are pending", self._num_pending)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)  # The next one ends at once.
        self._is_ending = True
        listener.stop()
        await self._answer_last_requests(http_server)
        await runner.cleanup()
        listener.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        logging.info("ended: %d requests are pending", self._num_pending)

    async def _answer_last_requests(self, http_server: web.Server) -> None:
        """Waits until no request is left and open connections had time."""
        started = time.monotonic()
        while (waited := time.monotonic() - started) < (
            self._limits.shutdown_timeout
        ):
            is_open = bool(http_server.connections)
            if not self._num_pending and (
                not is_open or waited > _LAST_REQUESTS_SECONDS
            ):
                return
            await asyncio.sleep(0.02)

    @web.middleware
    async def _answer(
        self, request: web.Request, handler: _Handler
    ) -> web.StreamResponse:
        """Answers every request, errors in TensorFlow Serving's form."""
        started = time.monotonic()
        self._num_pending += 1
        try:
            self._check_host(request)
            response: web.StreamResponse | None = self._preflight(request)
            if response is None:
                response = await handler(request)
        except web.HTTPException as error:
            reason = error.reason
            if error is request.match_info.http_exception:  # Of no address.
                reason += f": {_ADDRESSES}"
            response = _error(error.status, reason, error.headers)
        except errors.InputError as error:
            response = _error(400, str(error))
        except connections.BodyInterrupted as error:
            response = _error(error.status, str(error))
        except asyncio.TimeoutError:
            seconds = self._limits.request_timeout
            response = _error(504, f"not answered within {seconds:g} seconds")
        except Exception:
            logging.exception("%s %s", request.method, request.path)
            response = _error(500, _INTERNAL_ERROR)
        finally:
            self._num_pending -= 1
        if self._is_ending:
            response.force_close()
        name = request.match_info.get("name", "")
        self._metrics.count(
            name if name in self._servables else "",
            response.status,
            time.monotonic() - started,
        )
        return response

    def _check_host(self, request: web.Request) -> None:
        """Refuses names of other servers in the header Host.

        A page of another server, whose name was made to lead to this address,
        would otherwise read the answers (DNS rebinding). Browsers always send
        the header.
        """
        host = request.headers.get("Host")
        if host is None or _ANY in self._allowed_hosts:
            return
        if _host_name(host) not in self._allowed_hosts:
            raise _http_error(
                web.HTTPForbidden,
                f"the host {host} is not one of --allowed_hosts; behind a "
                "reverse proxy, add the name to this flag",
            )

    def _is_cors_origin(self, request: web.Request) -> bool:
        """Returns whether a page of --cors_origins sent the request."""
        origin = request.headers.get("Origin")
        return origin is not None and (
            origin in self._cors_origins or _ANY in self._cors_origins
        )

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

    async def _add_headers(
        self, request: web.Request, response: web.StreamResponse
    ) -> None:
        """Adds the headers of every response."""
        response.headers.update(_HEADERS)
        if self._cors_origins:
            response.headers["Vary"] = "Origin"
        if self._is_cors_origin(request):
            origin = request.headers["Origin"]
            response.headers["Access-Control-Allow-Origin"] = origin

    def _servable(self, request: web.Request) -> servable.Servable:
        name = request.match_info["name"]
        model = self._servables.get(name)
        version = request.match_info["version"].rpartition("/")[2]
        if model is None:
            names = errors.listed(sorted(self._servables))
            reason = f"there is no model {name}; this server has: {names}"
            raise _http_error(web.HTTPNotFound, reason)
        if version not in ("", str(model.version)):
            reason = f"there is no model {name}, version {version}"
            raise _http_error(web.HTTPNotFound, reason)
        return model

    async def _refuse_verb(self, request: web.Request) -> web.Response:
        self._servable(request)
        verb = request.match_info["verb"]
        raise _http_error(
            web.HTTPNotFound, f"there is no :{verb}; only :predict exists"
        )

    async def _predict(self, request: web.Request) -> web.Response:
        model = self._servable(request)
        with model.used():
            return await self._predict_with(model, request)

    async def _predict_with(
        self, model: servable.Servable, request: web.Request
    ) -> web.Response:
        encoding = request.headers.get("Content-Encoding", "")
        if encoding.lower() not in _ENCODINGS:
            raise _http_error(
                web.HTTPUnsupportedMediaType,
                f"Content-Encoding {encoding} is not supported",
            )
        chunks: list[bytes] = []
        try:
            await self._read_body(request, chunks)
            if self._num_places >= self._limits.max_pending_requests:
                raise _http_error(
                    web.HTTPServiceUnavailable,
                    f"{self._limits.max_pending_requests} requests are pending",
                )
            self._num_places += 1
            try:
                return await asyncio.wait_for(
                    self._predictions(b"".join(chunks), model),
                    self._limits.request_timeout,
                )
            finally:
                self._num_places -= 1
        finally:
            self._body_bytes -= sum(map(len, chunks))

    async def _read_body(
        self, request: web.Request, chunks: list[bytes]
    ) -> None:
        """Appends the body of a request to a list, also if it then fails."""
        size, limits = 0, self._limits
        connection = _connection(request)
        try:
            while chunk := await request.content.readany():
                size += len(chunk)
                if size > limits.max_request_bytes:
                    raise _http_error(
                        web.HTTPRequestEntityTooLarge,
                        "the request has more than "
                        f"{limits.max_request_bytes} bytes",
                        max_size=limits.max_request_bytes,
                        actual_size=size,
                    )
                chunks.append(chunk)
                self._body_bytes += len(chunk)
                if self._body_bytes > limits.max_body_bytes:
                    line = "the bodies of requests need too much memory"
                    longest = connections.longest_waiting(
                        connection.neighbours, connections.BODY
                    )
                    (longest or connection).interrupt_body(503, line)
        except (web.RequestPayloadError, ConnectionResetError) as error:
            raise _http_error(
                web.HTTPBadRequest, "the body of the request cannot be read"
            ) from error
        connection.end_body()

    async def _predictions(
        self, body: bytes, model: servable.Servable
    ) -> web.Response:
        parsed, parts = await self._call(
            functools.partial(self._read, body, model),
            is_long=len(body) > _LONG_REQUEST_BYTES,
        )
        results = await model.predict(parsed.signature_name, parts)
        num_rows = sum(len(part.rows) for part in parts)
        self._metrics.rows.labels(model.name).inc(num_rows)

        def write() -> bytes:
            rows = servable.join(parts, results)
            return rest_format.response(
                rows, by_row=parsed.by_row, task=model.task
            )

        num_values = sum(x.size for part in results for x in part.values())
        answer = await self._call(write, is_long=num_values > _MANY_VALUES)
        return web.Response(body=answer, content_type="application/json")

    async def _call(self, function: Callable[[], _T], *, is_long: bool) -> _T:
        """Calls a function; a long one in a thread, so that others go on."""
        if not is_long:
            return function()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, function)

    def _read(
        self, body: bytes, model: servable.Servable
    ) -> tuple[rest_format.Request, list[servable.Part]]:
        """Parses a request and cuts it into parts.

        Raises:
          InputError: it does not fit the signature, or has too many rows or
            outputs.
        """
        parsed = rest_format.parse(body, model.signatures)
        count = len(next(iter(parsed.inputs.values())))
        if count > self._limits.max_request_rows:
            raise errors.InputError(
                f"the request has {count} rows, more than "
                f"{self._limits.max_request_rows}"
            )
        signature = model.signatures[parsed.signature_name]
        num_values = signature.num_values(parsed.inputs)
        if num_values > self._limits.max_response_values:
            raise errors.InputError(
                f"the answer may have {num_values:,} values, more than "
                f"{self._limits.max_response_values:,}; send fewer or shorter "
                "rows"
            )
        return parsed, model.split(parsed.inputs)

    def _status(
        self, model: servable.Servable, *, all_versions: bool = True
    ) -> dict[str, Any]:
        """Returns the status of a model's versions, as TensorFlow Serving."""
        statuses = [versions.status(model.version, versions.AVAILABLE)]
        if self._watch and all_versions:
            statuses = self._watch.statuses(model.name)
        return {"model_version_status": statuses}

    async def _get_models(self, request: web.Request) -> web.Response:
        models = [
            {"name": name, "task": model.task, **self._status(model)}
            for name, model in self._servables.items()
        ]
        return web.json_response({"models": models})

    async def _get_status(self, request: web.Request) -> web.Response:
        is_any = not request.match_info["version"]
        status = self._status(self._servable(request), all_versions=is_any)
        return web.json_response(status)

    async def _get_metadata(self, request: web.Request) -> web.Response:
        model = self._servable(request)
        spec = {
            "name": model.name,
            "signature_name": "",
            "version": str(model.version),
        }
        signatures = {"signature_def": {"signature_def": model.metadata}}
        return web.json_response({"model_spec": spec, "metadata": signatures})

    async def _get_health(self, request: web.Request) -> web.Response:
        if self._is_ending:
            raise _http_error(web.HTTPServiceUnavailable, "ending")
        return web.Response(text="ok\n")

    async def _get_metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=prometheus_client.generate_latest(self._metrics.registry),
            headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST},
        )

    async def _get_page(self, request: web.Request) -> web.Response:
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
        return web.Response(
            text=_page_template().render(models=models),
            content_type="text/html",
            headers={"Content-Security-Policy": _PAGE_POLICY},
        )


class _Runner(web.AppRunner):
    """Runs the application, with its form of errors where it is not called."""

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            _connection(request).begin_request(request)
            try:
                return await made.request_handler(request)
            except web.HTTPException as error:
                # Before the application's middleware: a header Expect.
                return _error(error.status, error.reason, error.headers)

        return _HttpServer(
            handle, request_factory=made.request_factory, **self._kwargs
        )


class _HttpServer(web.Server):
    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(connections.Connection):
    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answers bytes that are not HTTP, and defects of aiohttp."""
        # Logs the error, and raises if a part of an answer was sent.
        super().handle_error(request, status, exc, message)
        if isinstance(exc, http_exceptions.ContentEncodingError):
            status = 415
        if status >= 500:
            line = _INTERNAL_ERROR
        else:
            # A picture of the place follows after an empty line.
            line = (message or "").partition("\n\n")[0].rstrip(":")
            line = f"the request is not accepted: {line}"
        response = _error(status, line)
        response.headers.update(_HEADERS)
        response.force_close()
        return response


def _connection(request: web.BaseRequest) -> connections.Connection:
    assert isinstance(request.protocol, connections.Connection)
    return request.protocol


class _Metrics:
    """What /metrics shows."""

    def __init__(
        self,
        servables: Mapping[str, servable.Servable],
        num_pending: Callable[[], int],
    ):
        self.registry = registry = prometheus_client.CollectorRegistry()
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
        self.rows = prometheus_client.Counter(
            "bert_rows",
            "Rows that were predicted.",
            ["model"],
            registry=registry,
        )
        batches = prometheus_client.Gauge(
            "bert_batches_total",
            "Batches that were computed; rows per batch show how well requests "
            "are batched.",
            ["model"],
            registry=registry,
        )

        def num_batches(name: str) -> float:
            return servables[name].num_batches

        for name in servables:
            batches.labels(name).set_function(
                functools.partial(num_batches, name)
            )
        prometheus_client.Gauge(
            "bert_pending_requests",
            "Requests without an answer.",
            registry=registry,
        ).set_function(num_pending)
        prometheus_client.ProcessCollector(registry=registry)

    def count(self, model: str, status: int, seconds: float) -> None:
        """Counts a request; `model` is "" if there is no such model."""
        self._requests.labels(model, str(status)).inc()
        self._seconds.labels(model).observe(seconds)


def accepted_hosts(
    host: str, given: Collection[str] | None = None
) -> frozenset[str]:
    """Returns the names that are accepted in the header Host.

    Args:
      host: the address to listen on.
      given: the value of --allowed_hosts; "*" is any name.

    Returns:
      `given` as browsers send it; without it, the names of a loopback address,
      and any name if others than this machine reach the address.
    """
    if given:
        return frozenset(_host_name(_with_brackets(name)) for name in given)
    if not _is_loopback(host):
        return frozenset([_ANY])
    return frozenset([*_LOOPBACK_NAMES, _host_name(_with_brackets(host))])


def _is_loopback(host: str) -> bool:
    """Returns whether only this machine reaches the address, or the name."""
    if not host:
        return False  # All addresses.
    try:
        infos = socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return False
    addresses = [ipaddress.ip_address(address[0]) for *_, address in infos]
    return all(address.is_loopback for address in addresses)


def _with_brackets(host: str) -> str:
    """Returns an address of IPv6 in the form that it has in URLs."""
    try:
        return f"[{ipaddress.IPv6Address(host)}]"
    except ValueError:
        return host


def _host_name(host: str) -> str:
    """Returns a name in lower case, without its port."""
    return re.sub(r":\d*$", "", host).lower()


def _is_no_bad_message(record: std_logging.LogRecord) -> bool:
    """Returns whether a record is not about bytes that are not HTTP.

    aiohttp answers them with status 400, and logs a traceback for each.
    """
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, http_exceptions.BadHttpMessage)


def _http_error(
    kind: type[web.HTTPException], reason: str, **values: Any
) -> web.HTTPException:
    """Makes an error of aiohttp with a reason, which must be one line."""
    return kind(reason=" ".join(reason.split()), **values)


def _error(
    status: int, reason: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Returns an error in TensorFlow Serving's form, on one line."""
    line = " ".join(str(reason).split())
    # Of a 405, the methods that are allowed.
    kept = {k: v for k, v in (headers or {}).items() if k == "Allow"}
    if kept:
        line += f"; allowed: {kept['Allow']}"
    return web.json_response({"error": line}, status=status, headers=kept)


@functools.cache
def _page_template() -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True)
    return environment.from_string(_PAGE.read_text(encoding="utf-8"))
