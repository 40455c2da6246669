"""Tests that new versions of a model are served without a stop.

python -m pytest tests/serving/versions_test.py
"""

import asyncio
import contextlib
import shutil
import weakref

import numpy as np
import pytest
from aiohttp import test_utils

from foundation import errors
from serving import servable, served_model, server, tensorflow_engine, versions

pytestmark = pytest.mark.last
SECONDS = 0.02


class Model(served_model.Model):
    """A model whose answer is the text of its file."""

    def __init__(self, directory):
        """Reads the file `model`, and `end`, which a killed copy lacks."""
        text = served_model.Spec((), np.dtype(object))
        self.task = self.max_seq_length = None
        self.signatures = {
            "serving_default": served_model.Signature(
                {"text": text}, {"text": text}
            )
        }
        with open(f"{directory}/model") as file:
            self._answer = file.read()
        try:
            open(f"{directory}/end").close()
        except OSError as error:
            raise errors.InputError(f"{directory}: no end") from error

    def predict(self, signature_name, inputs):
        texts = [f"{self._answer} {x.decode()}" for x in inputs["text"]]
        return [{"text": x} for x in texts]


ENGINE = served_model.Engine("model", Model)


def write(folder, version, is_complete=True):
    path = folder / str(version)
    path.mkdir(exist_ok=True)
    (path / "model").write_text(f"v{version}")
    if is_complete:
        (path / "end").write_text("")


def run(folder, use, engine=ENGINE):
    """Calls a function with a client while versions are watched."""

    async def main():
        directories = {"m": str(folder)}
        opened = {"m": servable.load("m", str(folder), engine)}
        watch = versions.Watch(opened, directories, engine, seconds=SECONDS)
        made = server.Server(opened)
        watching = asyncio.create_task(watch.run())
        try:
            async with test_utils.TestClient(
                test_utils.TestServer(made.app)
            ) as client:
                client.served = opened
                await use(client)
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching

    asyncio.run(main())


async def states(client):
    response = await client.get("/v1/models/m")
    found = (await response.json())["model_version_status"]
    return {int(x["version"]): x["state"] for x in found}


async def until(client, version, state):
    for _ in range(500):
        found = await states(client)
        if found.get(version) == state:
            return found
        await asyncio.sleep(SECONDS)
    raise AssertionError(found)


async def ask(client, text="a"):
    path, request = "/v1/models/m:predict", {"instances": [text]}
    async with client.post(path, json=request) as response:
        assert response.status == 200, await response.text()
        return (await response.json())["predictions"][0]


def test_a_new_version_is_served_when_it_is_complete(tmp_path, caplog):
    write(tmp_path, 1)

    async def use(client):
        assert await ask(client) == "v1 a"
        write(tmp_path, 3, is_complete=False)  # A killed copy.
        await until(client, 3, "END")
        await asyncio.sleep(10 * SECONDS)
        assert await ask(client) == "v1 a"
        lines = [x.getMessage() for x in caplog.records]
        (line,) = [x for x in lines if "3 is not served" in x]
        assert "version 1 stays" in line and "no end" in line
        write(tmp_path, 2)
        assert (await until(client, 2, "AVAILABLE"))[3] == "END"
        assert await ask(client) == "v2 a"
        write(tmp_path, 3)  # The copy is continued.
        await until(client, 3, "AVAILABLE")
        for version in (1, 2):  # Both are unloaded at the same time.
            await until(client, version, "END")
        assert await ask(client) == "v3 a"
        shutil.rmtree(tmp_path / "3")
        await until(client, 2, "AVAILABLE")
        assert await ask(client) == "v2 a"

    run(tmp_path, use)


def test_a_copy_under_way_is_not_loaded(tmp_path, caplog):
    write(tmp_path, 1)

    async def use(client):
        (tmp_path / "2").mkdir()
        (tmp_path / "2" / "model").write_text("v2")
        for n in range(20):
            (tmp_path / "2" / "data").write_text("x" * n)
            await asyncio.sleep(SECONDS / 2)
            assert list(await states(client)) == [1]
        write(tmp_path, 2)
        await until(client, 2, "AVAILABLE")

    run(tmp_path, use)
    assert "is not served" not in caplog.text


def test_requests_during_swaps_have_right_answers(tmp_path):
    write(tmp_path, 1)

    async def use(client):
        ends, seen = asyncio.Event(), []

        async def send(number):
            newest, count = 1, 0
            while not ends.is_set():
                found = await ask(client, f"{number} {count}")
                version, _, text = found.partition(" ")
                assert text == f"{number} {count}"
                assert int(version[1:]) >= newest
                newest = int(version[1:])
                count += 1
            seen.append(newest)

        clients = [asyncio.create_task(send(n)) for n in range(8)]
        # Its body is complete after the version it found is replaced.
        arrived = asyncio.Event()

        async def body():
            yield b'{"instances": '
            await arrived.wait()
            yield b'["slow"]}'

        slow = asyncio.create_task(
            client.post("/v1/models/m:predict", data=body())
        )
        await ask(client)
        for version in range(2, 6):
            write(tmp_path, version)
            found = await until(client, version, "AVAILABLE")
            assert found[1] == "UNLOADING"  # The slow request uses it.
        arrived.set()
        answer = await (await slow).json()
        assert answer == {"predictions": ["v1 slow"]}
        await until(client, 1, "END")
        ends.set()
        await asyncio.gather(*clients)
        assert seen == [5] * 8

    run(tmp_path, use)


def test_a_saved_model_replaces_another(toys, tmp_path, caplog):
    shutil.copytree(toys / "embedding", tmp_path / "1")

    async def use(client):
        assert await ask(client) == [1, 1]
        old = weakref.ref(client.served["m"].model)
        # As cp leaves it when it is killed.
        shutil.copytree(toys / "classification", tmp_path / "2")
        path = tmp_path / "2" / "saved_model.pb"
        path.write_bytes(path.read_bytes()[:100])
        await until(client, 2, "END")
        assert "cannot be loaded" in caplog.text
        shutil.copy(toys / "classification" / path.name, path)
        await until(client, 2, "AVAILABLE")
        assert (await ask(client))["label"] == "short"
        await until(client, 1, "END")
        assert old() is None

    run(tmp_path, use, tensorflow_engine.ENGINE)
