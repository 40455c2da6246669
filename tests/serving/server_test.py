"""Tests the server: addresses, errors, limits, metrics and the page.

python -m pytest tests/serving/server_test.py
"""

import asyncio
import dataclasses
import json
import re
import shutil
import threading
from unittest import mock

import pytest
from aiohttp import test_utils

from foundation import errors
from serving import (
    servable,
    served_directories,
    served_model,
    server,
    tensorflow_engine,
)

# The threads of batches run until the process ends.
pytestmark = pytest.mark.last
LIMITS = server.Limits(
    max_request_bytes=2000,
    request_timeout=600,  # Enough beside any other load of the machine.
    max_pending_requests=3,
)
ALL_CORES = servable.Batching(threads_per_batch=0)
SHORT = dataclasses.replace(LIMITS, request_timeout=2)
NAMES = ("classification", "tagging", "embedding", "multiple_choice", "numbers")


def load(models):
    """Loads what --models names."""
    return {
        name: servable.load(name, path, tensorflow_engine.ENGINE, ALL_CORES)
        for name, path in served_directories.by_name(models).items()
    }


@pytest.fixture(scope="module")
def servables(toys):
    opened = load(",".join(str(toys / name) for name in NAMES))
    for model in opened.values():
        model.warm_up()
    return opened


def run(servables, use, limits=LIMITS, **options):
    """Calls an asynchronous function with a client of a server."""

    async def main():
        made = server.Server(servables, limits, **options)
        async with test_utils.TestClient(
            test_utils.TestServer(made.app)
        ) as client:
            return await use(client)

    return asyncio.run(main())


def exchange(servables, *lines, **options):
    """Sends lines as bytes; returns status, headers and body of the answer."""

    async def use(client):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", client.server.port
        )
        writer.write("\r\n".join([*lines, "", ""]).encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        status, *pairs = head.strip().split("\r\n")
        headers = dict(pair.split(": ", 1) for pair in pairs)
        body = await reader.readexactly(int(headers.get("Content-Length", 0)))
        writer.close()
        return int(status.split()[1]), headers, body.decode()

    return run(servables, use, **options)


def get(servables, path, method="GET", **options):
    """Returns status and text of one request."""

    async def use(client):
        response = await client.request(method, path, **options)
        return response.status, await response.text()

    return run(servables, use)


def predict(servables, name, request):
    async def use(client):
        path = f"/v1/models/{name}:predict"
        response = await client.post(path, json=request)
        assert response.content_type == "application/json"
        return response.status, await response.json()

    return run(servables, use)


def test_predictions_are_returned_by_row_and_by_column(servables):
    status, found = predict(servables, "embedding", {"instances": ["ab", ""]})
    assert (status, found) == (200, {"predictions": [[2, 2], [0, 0]]})
    row = {"context": "c", "endings": ["a", "abc", "ab"]}
    status, found = predict(servables, "multiple_choice", {"instances": [row]})
    assert found["predictions"][0]["choice"] == 1
    status, found = predict(servables, "tagging", {"inputs": ["Ann is", "no"]})
    assert found["outputs"]["entity"] == [["Ann"], [""]]
    assert found["outputs"]["end"] == [[3], [-1]]
    row = {"a": 1, "b": 0.5}
    path = "numbers/versions/1"
    assert predict(servables, path, {"instances": [row] * 2}) == (
        200,
        {"predictions": [1.5, 1.5]},
    )


@pytest.mark.parametrize(
    "path, method, body, status, message",
    [
        ("/v1/models/embedding:predict", "POST", b"{", 400, "the request: "),
        ("/v1/models/tagging:predict", "POST", None, 400, "refused"),
        ("/v1/models/none:predict", "POST", b"{}", 404, "no model none"),
        ("/v1/models/none", "GET", None, 404, "embedding, multi"),
        ("/v1/models/none/metadata", "GET", None, 404, "no model none"),
        ("/v1/models/numbers/versions/2", "GET", None, 404, "version 2"),
        ("/v1/models/embedding:predict", "GET", None, 405, "allowed: POST"),
        ("/v1/models/embedding:classify", "POST", b"{}", 404, ":predict"),
        ("/v2", "GET", None, 404, "Not Found: GET /v1/models lists"),
        ("/v1/models/embedding", "POST", b"{}", 405, "/NAME:predict"),
        ("/v1/models/embedding:predict", "POST", b" " * 2001, 413, "2000"),
        (f"/v1/models/embedding/versions/{'1' * 4400}", "GET", None, 404, "11"),
    ],
)
def test_errors_are_one_line(servables, path, method, body, status, message):
    if "tagging" in path:
        body = b'{"instances": ["refused"]}'
    found, text = get(servables, path, method, data=body)
    assert found == status
    assert text.startswith('{"error": "') and message in text
    assert "\\n" not in text


def test_an_earlier_version_is_served_as_its_refusal_says(toys, tmp_path):
    for version, name in enumerate(("embedding", "numbers"), 1):
        shutil.copytree(toys / name, tmp_path / str(version))

    _, line = get(load(f"now={tmp_path}"), "/v1/models/now/versions/1")
    models = re.search(r"--models=([^ ]+) ", line)[1]
    both = load(models.replace("DIR", str(tmp_path)))
    assert predict(both, "old", {"instances": ["ab"]})[1]["predictions"] == [
        [2, 2]
    ]
    row = {"a": 1, "b": 0.5}
    assert predict(both, "now", {"instances": [row]})[1]["predictions"] == [1.5]


PREDICT = "POST /v1/models/embedding:predict HTTP/1.1"


@pytest.mark.parametrize(
    "lines, status",
    [
        (["no http"], 400),
        (["GET / HTTP/1.1", "Host: a", "no header"], 400),
        (["GET / HTTP/1.1", "Host: a", "A: " + "b" * 9000], 400),
        ([PREDICT, "Content-Length: 0"], 400),
        ([PREDICT, "Host: a", "Content-Length: x"], 400),
        ([PREDICT, "Host: a", "Expect: tea"], 417),
        (["POST / HTTP/1.1", "Host: a"], 405),
        (["CONNECT a:1 HTTP/1.1", "Host: a"], 404),
        ([PREDICT, "Host: a", "Content-Encoding: tea"], 400),
        (
            [PREDICT, "Host: a", "Content-Encoding: zstd"]
            + ["Content-Length: 4", "", "abcd"],
            400,
        ),
    ],
)
def test_what_is_no_request_is_refused_without_a_traceback(
    servables, lines, status, capfd
):
    found, _, body = exchange(servables, *lines)
    assert found == status and "Traceback" not in body
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "path", ["/", "/healthz", "/metrics", "/v1/models/embedding"]
)
def test_browsers_neither_guess_nor_keep_answers(servables, path):
    status, headers, _ = exchange(servables, f"GET {path} HTTP/1.1", "Host: a")
    assert status == 200
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    "listens, given, host, status",
    [
        ("127.0.0.1", (), "127.0.0.1:8501", 200),
        ("127.0.0.1", (), "LocalHost", 200),
        ("127.0.0.1", (), "[::1]:8501", 200),
        ("127.0.0.1", (), "example.com:8501", 403),
        ("127.0.0.1", (), "127.0.0.1.example.com", 403),
        ("127.0.0.1", (), "", 403),
        ("127.0.0.1", (), None, 200),
        ("localhost", (), "example.com", 403),
        ("::1", (), "example.com", 403),
        ("", (), "example.com", 200),
        ("127.0.0.2", (), "127.0.0.2", 200),
        ("0.0.0.0", (), "example.com", 200),
        ("0.0.0.0", ("Example.com",), "example.com:80", 200),
        ("0.0.0.0", ("example.com",), "localhost", 403),
        ("0.0.0.0", ("fe80::1",), "[fe80::1]:80", 200),
        ("127.0.0.1", ("*",), "example.com", 200),
    ],
)
def test_only_allowed_hosts_are_answered(
    servables, listens, given, host, status
):
    lines = ["GET /healthz HTTP/1.0"]
    if host is not None:
        lines = ["GET /healthz HTTP/1.1", f"Host: {host}"]
    allowed = server.accepted_hosts(listens, given)
    found, _, body = exchange(servables, *lines, allowed_hosts=allowed)
    assert found == status
    if status == 403:
        assert "--allowed_hosts" in json.loads(body)["error"]
        assert body.count("\n") == 0


def test_a_port_in_use_suggests_another():
    with server.bind("127.0.0.1", 0) as used:
        used.listen()
        port = used.getsockname()[1]
        with pytest.raises(errors.InputError, match=f"--port={port}") as caught:
            server.bind("127.0.0.1", port)
    assert "another --port" in str(caught.value)
    server.bind("127.0.0.1", port).close()
    with pytest.raises(errors.InputError, match="--host=no.such.host.invalid"):
        server.bind("no.such.host.invalid", port)


def test_pages_of_cors_origins_may_read_answers(servables):
    options = {"cors_origins": ("https://a.org",)}
    get_lines = "GET /healthz HTTP/1.1", "Host: x"
    for origin, expected in [
        ("https://a.org", "https://a.org"),
        ("https://b.org", None),
    ]:
        sent = f"Origin: {origin}"
        _, headers, _ = exchange(servables, *get_lines, sent, **options)
        assert headers.get("Access-Control-Allow-Origin") == expected
        assert headers["Vary"] == "Origin"
        status, headers, _ = exchange(
            servables,
            PREDICT.replace("POST", "OPTIONS"),
            "Host: x",
            sent,
            "Access-Control-Request-Method: POST",
            "Access-Control-Request-Headers: content-type",
            **options,
        )
        assert headers.get("Access-Control-Allow-Origin") == expected
        assert status == (204 if expected else 405)
        if expected:
            assert "POST" in headers["Access-Control-Allow-Methods"]
            assert headers["Access-Control-Allow-Headers"] == "Content-Type"
    # Errors can be read, too.
    lines = "GET /no HTTP/1.1", "Host: x", "Origin: https://b.org"
    status, headers, _ = exchange(servables, *lines, cors_origins=("*",))
    assert status == 404
    assert headers["Access-Control-Allow-Origin"] == "https://b.org"


def test_a_request_for_too_many_values_is_refused(servables, monkeypatch):
    monkeypatch.setattr(server, "_MOST_VALUES", 3)

    async def use(client):
        path = "/v1/models/embedding:predict"
        found = []
        for texts in (["a"], ["a", "b"]):
            response = await client.post(path, json={"instances": texts})
            found.append((response.status, await response.text()))
        return found

    one, two = run(servables, use)
    assert one[0] == 200 and two[0] == 400
    assert "may have 4 values, more than 3" in two[1]


def test_status_and_metadata_are_those_of_tensorflow_serving(servables):
    models = json.loads(get(servables, "/v1/models")[1])["models"]
    assert tuple(x["name"] for x in models) == NAMES
    status, text = get(servables, "/v1/models/embedding")
    assert status == 200 and '"state": "AVAILABLE"' in text
    assert json.loads(text).items() <= models[2].items()

    async def use(client):
        response = await client.get("/v1/models/embedding/metadata")
        return await response.json()

    found = run(servables, use)
    assert found["model_spec"] == {
        "name": "embedding",
        "signature_name": "",
        "version": "1",
    }
    signatures = found["metadata"]["signature_def"]["signature_def"]
    text = signatures["serving_default"]["inputs"]["text"]
    assert text["dtype"] == "DT_STRING"
    assert text["tensor_shape"]["dim"] == [{"size": "-1", "name": ""}]


class Waiting(served_model.Model):
    """A model that answers when the test lets it."""

    def __init__(self, model):
        """Wraps a model of an engine."""
        self.task, self.max_seq_length = model.task, None
        self.signatures, self._model = model.signatures, model
        self.may_answer = threading.Event()

    def predict(self, signature_name, inputs):
        self.may_answer.wait(10)
        return self._model.predict(signature_name, inputs)


def test_slow_and_too_many_requests_are_refused(servables):
    model = Waiting(servables["embedding"].model)

    async def use(client):
        path, request = "/v1/models/slow:predict", {"instances": ["a"]}
        pending = [client.post(path, json=request) for _ in range(5)]
        found = await asyncio.gather(*pending)
        statuses = sorted(response.status for response in found)
        model.may_answer.set()
        return statuses, (await client.post(path, json=request)).status

    statuses, later = run(
        {"slow": servable.Servable("slow", model, ALL_CORES)}, use, SHORT
    )
    # 503: too many at the same time; 504: not answered in time.
    assert statuses == [503, 503, 504, 504, 504]
    assert later == 200


def test_a_long_request_leaves_batches_to_others(servables):
    model = servables["embedding"]

    async def use(client):
        path, ended = "/v1/models/embedding:predict", []

        async def send(count):
            request = {"instances": ["a"] * count}
            response = await client.post(path, json=request)
            assert len((await response.json())["predictions"]) == count
            ended.append(count)

        before = model.num_batches
        long = asyncio.create_task(send(3200))
        while model.num_batches < before + 3:
            await asyncio.sleep(0)
        await asyncio.gather(long, send(1))
        return ended

    with mock.patch.object(asyncio, "to_thread", wraps=asyncio.to_thread) as to:
        assert run(servables, use, server.Limits()) == [1, 3200]
    to.assert_called_once()  # For the encoding of the long answer.


def test_metrics_count_requests_rows_and_batches(servables):
    async def use(client):
        path = "/v1/models/classification:predict"
        await client.post(path, json={"instances": ["a", "b", "c"]})
        await client.post(path, data=b"{")
        await client.get("/x/y")
        return await (await client.get("/metrics")).text()

    lines = run(servables, use).splitlines()
    model = 'model="classification"'
    assert f'bert_requests_total{{{model},status="200"}} 1.0' in lines
    assert f'bert_requests_total{{{model},status="400"}} 1.0' in lines
    assert 'bert_requests_total{model="",status="404"} 1.0' in lines
    assert f"bert_rows_total{{{model}}} 3.0" in lines
    assert f"bert_request_seconds_count{{{model}}} 2.0" in lines
    assert "bert_pending_requests 1.0" in lines
    batches = [x for x in lines if x.startswith(f"bert_batches_total{{{model}")]
    assert float(batches[0].split()[1]) >= 1
    assert any(x.startswith("process_resident_memory_bytes") for x in lines)


def test_the_page_is_complete_and_names_the_models(servables):
    async def use(client):
        response = await client.get("/")
        return await response.text(), dict(response.headers)

    text, headers = run(servables, use)
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert '"name": "tagging"' in text
    # Nothing is read from other servers.
    assert "http:" not in text and "https:" not in text and "{{" not in text


def test_names_in_the_page_are_escaped(servables):
    model = Waiting(servables["embedding"].model)
    model.task = "</script><script>alert(1)"
    status, text = get(
        {"slow": servable.Servable("slow", model, ALL_CORES)}, "/"
    )
    assert status == 200 and "<script>alert" not in text
