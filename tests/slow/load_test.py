"""Proves that a loaded server answers every request, and rightly.

LOAD=300 CLIENTS=32 python -m pytest tests/slow/load_test.py

Clients send valid requests, requests of wrong forms, and parts of requests
before they close the connection. Meanwhile the model's next version arrives. At
the end the server gets SIGTERM while the clients go on: each request that was
sent on an open connection has its answer.
"""

import asyncio
import collections
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import urllib.parse

import aiohttp
import pytest

from tests.slow import scenarios, warm

pytestmark = pytest.mark.all
SECONDS = float(os.environ.get("LOAD", "15"))
CLIENTS = int(os.environ.get("CLIENTS", "8"))
PATH = "v1/models/model"
# Method, path, body, status.
MALFORMED = (
    ("POST", f"{PATH}:predict", b"", 400),
    ("POST", f"{PATH}:predict", b"{", 400),
    ("POST", f"{PATH}:predict", b"[]", 400),
    ("POST", f"{PATH}:predict", b"null", 400),
    ("POST", f"{PATH}:predict", b"[" * 5000, 400),
    ("POST", f"{PATH}:predict", b"\xff\xfe", 400),
    ("POST", f"{PATH}:predict", b"{}", 400),
    ("POST", f"{PATH}:predict", b'{"instances": 1}', 400),
    ("POST", f"{PATH}:predict", b'{"instances": []}', 400),
    ("POST", f"{PATH}:predict", b'{"instances": [1]}', 400),
    ("POST", f"{PATH}:predict", b'{"instances": [null]}', 400),
    ("POST", f"{PATH}:predict", b'{"instances": [{"text": 1}]}', 400),
    ("POST", f"{PATH}:predict", b'{"instances": [{"other": ""}]}', 400),
    ("POST", f"{PATH}:predict", b'{"instances": ["\\ud800"]}', 400),
    ("POST", f"{PATH}:predict", b" " * 40000, 413),
    ("POST", "v1/models/none:predict", b"{}", 404),
    ("POST", f"{PATH}/versions/9:predict", b"{}", 404),
    ("POST", f"{PATH}:other", b"{}", 404),
    ("GET", f"{PATH}:predict", None, 405),
    ("GET", "v2/" + "x" * 3000, None, 404),
)


class Clients:
    """Sends requests and collects what is wrong with their answers."""

    def __init__(self, url, expected):
        """Sends nothing yet; `expected` has the scores of each version."""
        self._url = url
        self._expected = [*expected.items()]  # Text -> a label's scores.
        self.statuses = collections.Counter()
        self.versions = collections.Counter()
        self.wrong = []
        self.is_ending = False

    async def client(self, number):
        """Sends requests until the server listens no more."""
        rng = random.Random(number)
        connector = aiohttp.TCPConnector(limit=1)
        async with aiohttp.ClientSession(connector=connector) as session:
            while await self._send(session, rng):
                if rng.random() < 0.02:
                    await self._vanish(rng)

    async def _send(self, session, rng):
        rows = rng.choices(self._expected, k=rng.choice((1, 1, 3)))
        body = json.dumps({"instances": [{"text": text} for text, _ in rows]})
        request = "POST", f"{PATH}:predict", body.encode(), 200
        if rng.random() < 0.1:
            request, rows = rng.choice(MALFORMED), []
        method, path, body, status = request
        try:
            async with session.request(
                method, self._url + path, data=body
            ) as response:
                found, answer = response.status, await response.json()
        except aiohttp.ClientConnectorError:
            if not self.is_ending:
                self.wrong.append("no connection")
            return False
        except (aiohttp.ClientError, OSError) as error:
            self.wrong.append(f"lost: {error!r}")
            return False
        self.statuses[found] += 1
        if found != status:
            self.wrong.append(f"{found} instead of {status}: {body}: {answer}")
        elif found != 200:
            if [*answer] != ["error"] or "\n" in answer["error"]:
                self.wrong.append(f"not one line: {answer}")
        else:
            for (_, right), row in zip(
                rows, answer["predictions"], strict=True
            ):
                self._check(right, row)
        return True

    def _check(self, right, row):
        """Finds the version that gave an answer."""
        apart = [
            max(
                abs(scores[label] - value)
                for label, value in zip(
                    row["labels"], row["probabilities"], strict=True
                )
            )
            for scores in right
        ]
        if min(apart) > 1e-4:
            self.wrong.append(f"{row} instead of {right}")
        self.versions[apart.index(min(apart))] += 1

    async def _vanish(self, rng):
        """Sends a part of a request and closes the connection."""
        url = urllib.parse.urlsplit(self._url)
        content = (
            f"POST /{PATH}:predict HTTP/1.1\r\nHost: {url.netloc}\r\n"
            'Content-Length: 24\r\n\r\n{"instances": ["a text"]}'
        ).encode()
        try:
            _, writer = await asyncio.open_connection(url.hostname, url.port)
        except OSError:
            return  # `_send` finds out why.
        writer.write(content[: rng.randrange(len(content))])
        await asyncio.sleep(0.02 * rng.random())
        writer.transport.abort()


@pytest.fixture(scope="module")
def exported(data, process, tmp_path_factory):
    """Directories of two versions of a model."""
    folder = tmp_path_factory.mktemp("exported")
    training = scenarios.arguments("grid", data, folder / "other")
    training = [x for x in training if not x.startswith("--learning_rate")]
    training += ["--learning_rate=5e-3", "--random_seed=7"]
    assert process.run(training).code == 0
    models = data / "classifier", folder / "other"
    for version, model in enumerate(models, 1):
        flags = f"--model_dir={model}", f"--output_dir={folder / str(version)}"
        ended = process.run(["export_model.py", *flags])
        assert ended.code == 0, ended.text
    return models, folder


def test_every_request_is_answered_rightly(data, exported, tmp_path):
    import bert

    models, folder = exported
    lines = (data / "corpus.txt").read_text().splitlines()
    texts = [line for line in lines if line][:100]
    found = [bert.load(str(model)).predict(texts) for model in models]
    expected = {
        text: [dict(version[i].probabilities) for version in found]
        for i, text in enumerate(texts)
    }
    served = tmp_path / "served"
    served.mkdir()
    shutil.copytree(folder / "1", served / "1")
    flags = [f"--models=model={served}", "--port=0"]
    flags += ["--max_request_bytes=20000", "--version_poll_seconds=0.5"]
    server = subprocess.Popen(
        [sys.executable, str(warm.ROOT / "serve.py"), *flags],
        stderr=subprocess.PIPE,
        text=True,
    )
    log = []
    for line in server.stderr:
        log.append(line)
        if url := re.search(r"serving at (http://\S+)", line):
            break
    assert url, log
    threading.Thread(target=lambda: log.extend(server.stderr)).start()
    clients = Clients(url[1].rstrip("/") + "/", expected)

    async def main():
        tasks = [asyncio.create_task(clients.client(i)) for i in range(CLIENTS)]
        await asyncio.sleep(SECONDS / 2)
        shutil.copytree(folder / "2", tmp_path / "arriving")
        (tmp_path / "arriving").rename(served / "2")
        await asyncio.sleep(SECONDS / 2)
        while not clients.versions[1] and not clients.wrong:
            await asyncio.sleep(0.5)
        clients.is_ending = True
        server.terminate()
        await asyncio.gather(*tasks)

    try:
        asyncio.run(asyncio.wait_for(main(), SECONDS + 300))
        assert server.wait(60) == 0, log
    finally:
        server.kill()
        server.wait()
    print(f"\n{clients.statuses}, rows by version {clients.versions}")
    assert clients.wrong == []
    assert clients.versions[0] and clients.versions[1]
    assert {200, 400, 404, 405, 413} <= clients.statuses.keys()
    assert not [line for line in log if "Traceback" in line]
