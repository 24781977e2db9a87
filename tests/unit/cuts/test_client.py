from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cuts import client
from tests.cuts.judging import Failure
from tests.cuts.watching import Answers

GOOD = f"HTTP/1.0 200 OK\r\nDate: Wed, 25 Nov 2026 20:00:00 GMT\r\nContent-Length: 21\r\n\r\n{client.WORD}\n".encode()


def test_the_guests_whole_answer_is_one() -> None:
    assert client.told(GOOD) == client.told(GOOD[:-1]) == client.OK


def test_as_much_of_it_as_came_is_cut_off() -> None:
    assert {client.told(GOOD[:length]) for length in range(len(GOOD) - 1)} == {client.CUT_OFF}


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\n\r\nit works\n",
        GOOD + b"and more",
        GOOD.replace(b"200 OK", b"404 Not Found"),
        b"HTTP/1.0 404 Not Found\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"SSH",
    ],
)
def test_answers_of_other_servers_are_distinguished(answer: bytes) -> None:
    assert client.told(answer).startswith(f"{client.ANOTHER}: b'")


def test_answers_and_failures_are_noted_with_their_times() -> None:
    said = f"1.250 {client.OK}\n1.5 ECONNREFUSED\n2.000 {client.ANOTHER}: b'x y'\n"
    answers = Answers()
    with subprocess.Popen([sys.executable, "-c", f"print({said!r}, end='')"], stdout=subprocess.PIPE, text=True) as process:
        answers.listen(process)
    assert answers.times == [1.25]
    assert answers.failures == [Failure(1.5, "ECONNREFUSED"), Failure(2.0, f"{client.ANOTHER}: b'x y'")]
