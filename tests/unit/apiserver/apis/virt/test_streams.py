from __future__ import annotations

import pytest

from apiserver.apis.virt.places import streams
from apiserver.apis.virt.places.streams import Forward


@pytest.mark.parametrize("forward", [Forward("tcp", 1), Forward("tcp", 22), Forward("udp", 65535)])
def test_name_of_a_port_is_read_back(forward: Forward) -> None:
    assert streams.forward_of(forward.stream) == forward


@pytest.mark.parametrize(
    "name", ["console", "portforward", "portforward-tcp", "portforward-tcp-0", "portforward-tcp-65536", "portforward-sctp-1", "x-tcp-1"]
)
def test_other_names_are_no_port(name: str) -> None:
    assert streams.forward_of(name) is None


@pytest.mark.parametrize("text", ["", "0", "-1", "+1", "65536", "100000", "\u0661", "1 ", "0x1"])
def test_port_is_a_decimal_number_in_range(text: str) -> None:
    assert streams.port_of(text) is None
    assert streams.port_of("65535") == 65535
