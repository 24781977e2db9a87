from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.hypervisor import facts
from launcher.hypervisor.port import Progress


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_the_answer_of_an_agent_is_what_it_returned(value: object) -> None:
    assert facts.agent_answer(json.dumps({"return": value})) == value


@pytest.mark.parametrize("text", ["", "1", "[]", "{}", '{"error": {}}', '{"return": ', " " * facts.MAX_ANSWER + '{"return": 1}'], ids=len)
def test_what_is_no_answer_is_told(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's own among them
        facts.agent_answer(text)


def test_an_answer_that_is_nested_too_deeply_is_told() -> None:
    with pytest.raises(RecursionError):
        facts.agent_answer('{"return": ' + "[" * 100_000 + "]" * 100_000 + "}")


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ("", 0),
        ("<vsock/>", 0),
        ("<vsock><cid auto='yes'/></vsock>", 0),
        ("<vsock><cid auto='yes' address='3'/></vsock>", 3),
        ("<vsock><cid auto='no' address='x'/></vsock>", 0),
    ],
)
def test_the_address_of_sockets_is_the_one_that_libvirt_chose(devices: str, expected: int) -> None:
    assert facts.cid(ET.fromstring(f"<domain><devices>{devices}</devices></domain>")) == expected


def test_figures_of_a_migration() -> None:
    stats = {
        "type": 2,
        "time_elapsed": 12,
        "memory_total": 3,
        "memory_processed": 2,
        "memory_remaining": 1,
        "memory_iteration": 4,
        "downtime": 5,
    }
    assert facts.progress(stats) == Progress(12, 3, 2, 1, 4, 5)
    assert facts.progress({"type": 0}) is None
