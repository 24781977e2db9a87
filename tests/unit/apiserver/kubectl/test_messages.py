"""A server's warnings, printed as by kubectl (``k8s.io/apimachinery/pkg/util/net.ParseWarningHeaders``)."""

from __future__ import annotations

import errno
import socket
import ssl

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from apiserver.apis.meta import errors
from apiserver.endpoints.responses import warning
from apiserver.kubectl import messages, streams

HOSTILE = "\x1b]52;c;cm0gLXJmIH4K\x07\x9b2J no\nstream"
"""Sets the clipboard and clears the screen of a vulnerable terminal."""


@pytest.mark.parametrize(
    ("headers", "lines"),
    [
        ([], []),
        (['299 - "paused"', '299 - "paused"', '299 kube "x"'], ["Warning: paused", "Warning: x"]),
        (['299 - "one, two", 299 - "three" "Sun, 22 Nov 2026 18:00:00 GMT"'], ["Warning: one, two", "Warning: three"]),
        ([r'299 - "a \"b\" \\ c"'], [r'Warning: a "b" \ c']),
        (['299 - "\x1b[2J\u009b"'], ["Warning: ?[2J?"]),
        (['110 - "stale"', "nonsense", '299 - "', '299 - ""', '299 "x"', ""], []),
    ],
    ids=["none", "each once", "in one line", "escaped", "terminal", "no warnings"],
)
def test_warnings_are_printed_once_and_harm_no_terminal(headers: list[str], lines: list[str]) -> None:
    assert messages.of_warnings(headers) == lines


def test_warnings_of_virt_api_are_parsed() -> None:
    text = 'virtual machine "a\\b" is paused'
    assert messages.of_warnings([warning(text)]) == [f"Warning: {text}"]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "Connection refused"),
        (OSError(errno.EADDRINUSE, "error while attempting to bind on address ('127.0.0.1', 5900)"), "Address already in use"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "key.pem"), "[Errno 2] No such file or directory: 'key.pem'"),
        (OSError(errno.EISDIR, "Is a directory", "key.pem"), "[Errno 21] Is a directory: 'key.pem'"),
        (OSError("Multiple exceptions: one, two"), "Multiple exceptions: one, two"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "[Errno -2] Name or service not known"),
        (TimeoutError(), "timed out"),
        (EOFError(), "EOFError"),
    ],
)
def test_operating_system_errors_are_shown_in_its_words(error: Exception, text: str) -> None:
    assert messages.describe(error) == text


def test_a_conflict_names_the_machine_once() -> None:
    text = 'Operation cannot be fulfilled on virtualmachines.kubevirt.io "web": it is off'
    shown = str(messages.of_status(errors.Conflict(text), "pause virtual machine default/web"))
    assert shown == "Error from server (Conflict): cannot pause virtual machine default/web: it is off"
    assert text in str(messages.of_status(errors.BadRequest(text), "pause it"))


def test_no_object_of_a_library_is_shown() -> None:
    key = ConnectionKey("127.0.0.1", 1, is_ssl=True, ssl=ssl.create_default_context(), proxy=None, proxy_auth=None, proxy_headers_hash=None)
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)")
    assert messages.describe(aiohttp.ClientConnectorError(key, refused)) == "Connection refused"


@pytest.mark.parametrize("error", [errors.ServiceUnavailable(HOSTILE), errors.Unauthorized(HOSTILE), errors.UnknownStatus(HOSTILE)])
def test_no_terminal_obeys_what_a_server_answered(error: errors.StatusError) -> None:
    upgrade = streams.UpgradeFailed(error, "open it")
    for text in (str(messages.of_status(error, "open it")), str(upgrade), str(upgrade.failure)):
        assert "]52;c;cm0gLXJmIH4K2J no | stream" in text
        assert text.isprintable()


def test_no_terminal_obeys_why_a_connection_failed_or_ended() -> None:
    for text in (str(messages.of_transport(ValueError(HOSTILE), "https://one", "open it")), str(streams.End(1011, HOSTILE))):
        assert text.endswith("]52;c;cm0gLXJmIH4K2J no | stream")
        assert text.isprintable()
    assert str(streams.End(1006, "\x1b\x07")) == "the connection broke"
