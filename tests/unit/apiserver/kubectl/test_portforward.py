from __future__ import annotations

import re

import pytest

from apiserver.apis.virt.places.streams import Forward
from apiserver.kubectl.portforward import Local, parse


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("22", Local(22, Forward("tcp", 22))),
        ("2222:22", Local(2222, Forward("tcp", 22))),
        (":22", Local(0, Forward("tcp", 22))),
        ("0:22", Local(0, Forward("tcp", 22))),
        ("udp/5353:53", Local(5353, Forward("udp", 53))),
        ("tcp/80", Local(80, Forward("tcp", 80))),
    ],
)
def test_ports_are_written_as_for_kubectl_and_virtctl(text: str, local: Local) -> None:
    assert parse(text) == local


@pytest.mark.parametrize("text", ["", "0", "65536", "22:", "65536:22", "sctp/22", "UDP/22", "a:22", "1:2:3", "udp/", "-1", "22/udp"])
def test_anything_else_is_no_port(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        parse(text)
