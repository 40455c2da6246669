"""Tests serve.py as a process: its flags, and how it ends.

python -m pytest tests/serve_test.py
"""

import concurrent.futures
import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from tests.serving import toy_models

# Seconds after which a test fails; enough beside any other load of the machine.
WAIT = 200


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return toy_models.embedding(tmp_path_factory.mktemp("models") / "lengths")


def command(repository, *flags):
    return [sys.executable, str(repository / "serve.py"), *flags]


def start(repository, *flags):
    """Starts a server; returns the process and its port."""
    process = subprocess.Popen(
        command(repository, "--port=0", *flags),
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stderr:
        found = re.search(r"serving at http://127\.0\.0\.1:(\d+)/", line)
        if found:
            return process, int(found[1])
    pytest.fail(f"the server ended with code {process.wait()}")


def call(connection, text):
    body = json.dumps({"instances": [text]})
    connection.request("POST", "/v1/models/lengths:predict", body)
    response = connection.getresponse()
    answer = json.loads(response.read())
    assert response.status == 200, answer
    assert answer == {"predictions": [[len(text), len(text)]]}
    return response.getheader("Connection") == "close"


def client(port, number, all_answered=None):
    """Sends requests until the server closes the connection.

    After its first answer it waits for the other parties of a barrier.

    Returns the number of answers.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
    answered, is_last = 0, False
    while not is_last:
        is_last = call(connection, "a" * (answered % 50 + number))
        answered += 1
        if all_answered and answered == 1:
            all_answered.wait(WAIT)
    return answered


def test_accepted_requests_are_answered_after_sigterm(repository, model):
    process, port = start(repository, f"--models={model}", "--max_batch_size=4")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        barrier = threading.Barrier(9)
        clients = [pool.submit(client, port, n, barrier) for n in range(8)]
        barrier.wait(WAIT)
        process.send_signal(signal.SIGTERM)
        # Every client gets a last answer, which closes its connection.
        answered = [x.result() for x in clients]
    assert process.wait(WAIT) == 0
    assert min(answered) > 1
    assert "ended: 0 requests are pending" in process.stderr.read()
    with pytest.raises(OSError):
        client(port, 1)


def test_one_thread_for_each_batch_and_a_new_version(
    repository, model, tmp_path
):
    folder = tmp_path / "lengths"
    shutil.copytree(model, folder / "1")
    flags = f"--models={folder}", "--threads_per_batch=1"
    flags += ("--version_poll_seconds=0.05",)
    process, port = start(repository, *flags)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(client, port, n) for n in range(8)]
        shutil.copytree(model, folder / "2")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
        states = {}
        while states.get("1") != "END":
            time.sleep(0.05)
            connection.request("GET", "/v1/models/lengths")
            found = json.loads(connection.getresponse().read())
            found = found["model_version_status"]
            states = {x["version"]: x["state"] for x in found}
        assert states["2"] == "AVAILABLE"
        process.send_signal(signal.SIGTERM)
        assert min(x.result() for x in clients) > 1
    assert process.wait(WAIT) == 0


def test_what_is_not_for_the_server_is_refused_without_a_traceback(
    repository, model
):
    """An idle connection does not keep the server that SIGINT ends."""
    flags = (
        "--allowed_hosts=localhost,127.0.0.1",
        "--cors_origins=https://a.org",
    )
    process, port = start(repository, f"--models={model}", *flags)
    for data in (b"no http\r\n\r\n", b"GET / HTTP/1.1\r\nno header\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port), WAIT) as connection:
            connection.sendall(data)
            assert b" 400 Bad Request" in connection.recv(100)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
    for host, status in ((f"localhost:{port}", 200), ("a.org", 403)):
        headers = {"Host": host, "Origin": "https://a.org"}
        connection.request("GET", "/healthz", headers=headers)
        response = connection.getresponse()
        assert response.status == status and response.read()
        origin = response.getheader("Access-Control-Allow-Origin")
        assert origin == "https://a.org"
    call(connection, "abc")
    process.send_signal(signal.SIGINT)
    assert "Traceback" not in process.stderr.read()
    assert process.wait(WAIT) == 0
