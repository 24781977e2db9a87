"""Any request gets an answer other than 500 within seconds.

Each fuzzer runs for 30 s, in ``make test`` for 8 s, or for ``FUZZ_SECONDS``.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import random
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings

from tests.fuzz import heavy
from tests.fuzz.requests import Sent, requests
from tests.fuzz.server import Server, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
SECONDS = os.environ.get("FUZZ_SECONDS", "")
ANSWER_SECONDS = 15.0
ALLOWED = frozenset({503, 504})
GENERATED = re.compile(r"[1-9]\d* generated")
PARTS = 3
"""Each has every heavy object, and sends it by one of three requests."""


@pytest.fixture(scope="module")
def seconds(*, is_short: bool) -> float:
    return float(SECONDS or (8 if is_short else 30))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("fuzz")) as made:
        yield made


def test_documented_requests_get_documented_answers(server: Server, seconds: float, *, is_short: bool) -> None:
    few = ("--phases", "fuzzing", "--max-examples", "1") if is_short else ()
    told = asked_by_schemathesis(server, seconds, few)
    if not GENERATED.search(told):  # on a busy machine, the time may be over before the first request
        told = asked_by_schemathesis(server, 3 * seconds, few)
    assert GENERATED.search(told), told
    assert server.failures() == []


def asked_by_schemathesis(server: Server, seconds: float, options: tuple[str, ...]) -> str:
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi/v3/apis/kubevirt.io/v1alpha1", "--url", server.url,
        "--tls-verify", str(server.directory / "ca.crt"), "--request-cert", str(server.directory / "client.crt"),
        "--request-cert-key", str(server.directory / "client.key"),
        "--max-time", str(int(seconds)), "--request-timeout", str(ANSWER_SECONDS),
        "--checks", "not_a_server_error,content_type_conformance,response_schema_conformance", "--continue-on-failure", "--no-color",
    ]  # fmt: skip
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.fuzz.hooks", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, *options], cwd=server.directory, env=environment, capture_output=True, text=True, timeout=seconds + 120, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout[-6000:]


class Dropped(AssertionError):
    pass


class Wire:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._tls: ssl.SSLContext = server.tls()
        self._connection: http.client.HTTPSConnection | None = None

    def send(self, sent: Sent) -> tuple[int, bytes]:
        for _ in range(2):
            connection = self._connection or http.client.HTTPSConnection(
                self._server.host, self._server.port, context=self._tls, timeout=ANSWER_SECONDS
            )  # fmt: skip
            reused, self._connection = self._connection is not None, connection
            try:
                connection.putrequest(sent.method, sent.target, skip_accept_encoding=True)
                for name, value in sent.headers.items():
                    connection.putheader(name, value.encode())
                connection.putheader("Content-Length", str(len(sent.body)))
                connection.endheaders(sent.body)
                response = connection.getresponse()
                if response.status == 101:
                    self.close()
                    return 101, b""
                return response.status, response.read()
            except (http.client.BadStatusLine, ConnectionError, ssl.SSLError) as error:
                self.close()
                if not reused:  # it may have been closed during sending: send again
                    raise Dropped(f"no answer to {sent}") from error
        raise AssertionError("unreachable: the second connection is a new one")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def test_no_request_at_all_is_a_server_error_or_hangs(server: Server, seconds: float) -> None:
    wire, counted = Wire(server), [0]

    def one(sent: Sent) -> None:
        began = time.monotonic()
        code, body = wire.send(sent)
        counted[0] += 1
        assert code == 101 or 200 <= code < 500 or code in ALLOWED, (sent, code, body[:500])
        assert b"Traceback" not in body, (sent, body[:500])
        assert time.monotonic() - began < ANSWER_SECONDS, sent

    first, deadline = random.randrange(2**32), time.monotonic() + seconds
    with contextlib.closing(wire):
        for number in itertools.count(first):
            if time.monotonic() > deadline:
                break
            quick = settings(max_examples=50, deadline=None, database=None, suppress_health_check=list(HealthCheck))
            seed(number)(quick(given(requests())(one)))()
        assert wire.send(Sent("GET", "/livez"))[0] == 200
    print(f"[{counted[0]} requests, seeds from {first}]")
    assert counted[0] > seconds
    assert server.failures() == []


@pytest.mark.sample(3, "heavy bodies")
@pytest.mark.parametrize("part", range(PARTS))
def test_no_body_within_the_limit_holds_up_the_server(server: Server, part: int) -> None:
    slowest = (0.0, "")
    with contextlib.closing(Wire(server)) as wire:
        assert wire.send(heavy.CREATE)[0] in (201, 409)
        for what, sent in itertools.islice(heavy.requests(), part, None, PARTS):
            began = time.monotonic()
            code, body = wire.send(sent)
            slowest = max(slowest, (time.monotonic() - began, what))
            assert 200 <= code < 500, (what, code, body[:500])
            assert slowest[0] < ANSWER_SECONDS, slowest
    print(f"[the slowest took {slowest[0]:.1f} s: {slowest[1]}]")
    assert server.failures() == []
