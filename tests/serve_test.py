"""Tests serve.py as a process: its flags, and how it ends.

python -m pytest tests/serve_test.py
"""

import concurrent.futures
import http.client
import json
import re
import signal
import subprocess
import sys
import threading

import pytest

from tests.serving import toy_models

# Seconds after which a test fails; enough beside any other load of the machine.
WAIT = 200


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return toy_models.embedding(tmp_path_factory.mktemp("models") / "lengths")


def start(repository, *flags):
    """Starts a server; returns the process and its port."""
    process = subprocess.Popen(
        [sys.executable, str(repository / "serve.py"), "--port=0", *flags],
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
    process, port = start(
        repository,
        f"--models={model}",
        *("--max_batch_size=4", "--threads_per_batch=1"),
        *("--allowed_hosts=127.0.0.1", "--cors_origins=https://a.org"),
    )
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
    headers = {"Host": "a.org", "Origin": "https://a.org"}
    connection.request("GET", "/healthz", headers=headers)
    refused = connection.getresponse()
    assert refused.status == 403 and refused.read()
    origin = refused.getheader("Access-Control-Allow-Origin")
    assert origin == "https://a.org"
    connection.close()
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
