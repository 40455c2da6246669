"""Tests names of the Hugging Face Hub, with a server on this machine.

python -m pytest tests/foundation/hub_test.py
"""

import hashlib
import http.server
import importlib
import json
import os
import pathlib
import subprocess
import sys
import threading
import types

import pytest

from foundation import errors, hub

NAME = "me/small-bert"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = {
    "config.json": b"{}",
    "vocab.txt": b"[PAD]\n",
    "tokenizer_config.json": b"{ }",
    "model.safetensors": b"weights",
    "tf_model.h5": b"not needed",
    "pytorch_model.bin": b"nor this",
    "onnx/model.onnx": b"never needed",
}
PROGRAM = "import sys, foundation.hub as hub; print(hub.local(sys.argv[1]))"
needs_library = pytest.mark.skipif(
    importlib.util.find_spec("huggingface_hub") is None,
    reason="needs huggingface_hub",
)


@pytest.fixture
def endpoint():
    """A Hub with one model; its `asked` are the files that were sent."""

    class Hub(http.server.BaseHTTPRequestHandler):
        files, asked = dict(FILES), []

        def do_HEAD(self):
            self.answer(has_body=False)

        def do_GET(self):
            self.answer(has_body=True)

        def answer(self, has_body):
            path = self.path.partition("?")[0]
            headers, body, status = {}, b"", 200
            if path.startswith(f"/api/models/{NAME}/tree/"):
                body = json.dumps(
                    [
                        {"type": "file", "path": k, "size": len(x)}
                        | {"oid": hashlib.sha1(x).hexdigest()}
                        for k, x in self.files.items()
                    ]
                ).encode()
            elif path.startswith(f"/api/models/{NAME}"):
                names = [{"rfilename": name} for name in self.files]
                found = {"id": NAME, "sha": COMMIT, "siblings": names}
                body = json.dumps(found).encode()
            elif path.startswith(f"/{NAME}/resolve/"):
                name = path.split("/", 5)[5]
                body = self.files.get(name, b"")
                headers = {
                    "ETag": f'"{hashlib.sha1(body).hexdigest()}"',
                    "X-Repo-Commit": COMMIT,
                }
                if has_body:
                    self.asked.append(name)
            else:
                status, headers = 404, {"X-Error-Code": "RepoNotFound"}
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if has_body:
                self.wfile.write(body)

        def log_message(self, *values):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield types.SimpleNamespace(
        url=f"http://127.0.0.1:{server.server_address[1]}",
        files=Hub.files,
        asked=Hub.asked,
    )
    server.shutdown()
    server.server_close()
    thread.join()


def resolve(name, home, **environment):
    """Resolves a name in a new process, whose library reads its environment."""
    given = os.environ | {"HF_HOME": str(home)} | environment
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name],
        cwd=ROOT,
        env=given,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip(), done.stderr


@needs_library
def test_only_what_is_read_is_downloaded_and_only_once(endpoint, tmp_path):
    environment = {"HF_ENDPOINT": endpoint.url, "HF_HUB_DISABLE_XET": "1"}
    folder, log = resolve(f"hf://{NAME}", tmp_path, **environment)
    assert folder, log
    assert folder.startswith(str(tmp_path)) and folder.endswith(COMMIT)
    needed = {"config.json", "vocab.txt", "tokenizer_config.json"}
    needed.add("model.safetensors")
    assert sorted(endpoint.asked) == sorted(needed)
    data = pathlib.Path(folder, "model.safetensors").read_bytes()
    assert data == FILES["model.safetensors"]
    assert resolve(f"hf://{NAME}", tmp_path, **environment)[0] == folder
    assert len(endpoint.asked) == len(needed)
    # Without the network.
    environment = {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": "http://127.0.0.1:1"}
    assert resolve(f"hf://{NAME}", tmp_path, **environment)[0] == folder


@needs_library
@pytest.mark.parametrize(
    ("missing", "expected"),
    [([], "tf_model.h5"), (["tf_model.h5"], "pytorch_model.bin")],
)
def test_other_weights_are_downloaded_if_there_are_no_safetensors(
    missing, expected, endpoint, tmp_path
):
    for name in ["model.safetensors", *missing]:
        del endpoint.files[name]
    environment = {"HF_ENDPOINT": endpoint.url, "HF_HUB_DISABLE_XET": "1"}
    folder, log = resolve(f"hf://{NAME}", tmp_path, **environment)
    assert pathlib.Path(folder, expected).exists(), log
    weights = {"tf_model.h5", "pytorch_model.bin"}
    assert {*endpoint.asked} & weights == {expected}


@needs_library
@pytest.mark.parametrize("is_offline", [False, True])
def test_a_model_that_is_not_there_is_named_in_one_line(
    is_offline, endpoint, tmp_path
):
    _, log = resolve(
        "hf://me/other",
        tmp_path,
        HF_ENDPOINT=endpoint.url,
        HF_HUB_OFFLINE=str(int(is_offline)),
    )
    last = log.strip().splitlines()[-1]
    assert "InputError: hf://me/other: " in last, log


def test_the_command_for_a_missing_package_is_named(monkeypatch):
    hub._download.cache_clear()
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(errors.InputError, match="pip install huggingface_hub"):
        hub.local("hf://me/missing-package")


def test_a_process_uses_one_version(monkeypatch, tmp_path):
    hub._download.cache_clear()
    (tmp_path / "model.safetensors").touch()
    calls = []

    def snapshot_download(*arguments, **options):
        calls.append((arguments, options["revision"]))
        return str(tmp_path)

    library = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    for _ in range(2):
        assert hub.local("hf://me/model@v1/") == str(tmp_path)
    assert calls == [(("me/model",), "v1")]
    assert hub.local("me/model") == "me/model"
    hub._download.cache_clear()
