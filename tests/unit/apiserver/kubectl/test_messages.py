"""Warnings of a server, as kubectl prints them (``k8s.io/apimachinery/pkg/util/net.ParseWarningHeaders``)."""

from __future__ import annotations

import pytest

from apiserver.endpoints.responses import warning
from apiserver.kubectl import messages


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


def test_what_virt_api_writes_is_read() -> None:
    text = 'virtual machine "a\\b" is paused'
    assert messages.of_warnings([warning(text)]) == [f"Warning: {text}"]
