from __future__ import annotations

import json
from typing import Any

import pytest

from launcher.protocol.statistics import LIMIT, MAX_NAME, MAX_VALUES, decoded, encoded

SOUND = {"cpu.time": 7, "vcpu.0.state": 1, "net.0.name": "tap0", "net.0.rx.bytes": LIMIT - 1, "block.12.fl.times": 0, "balloon.rss": 5}


def test_statistics_arrive_as_they_were_sent() -> None:
    assert decoded(encoded(SOUND)) == SOUND


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("balloon.last-update", 1),
        ("net.count", 1),
        ("vcpu.1000.time", 1),
        ("vcpu.00.time", 1),
        ("block.01.fl.reqs", 1),
        ("net.\N{ARABIC-INDIC DIGIT THREE}.rx.bytes", 1),
        ("cpu.time", -1),
        ("cpu.time", LIMIT),
        ("cpu.time", True),
        ("cpu.time", 1.5),
        ("cpu.time", "1"),
        ("net.0.name", 1),
        ("net.0.name", ""),
        ("net.0.name", "x" * (MAX_NAME + 1)),
        ("net.0.name", "a\nb"),
    ],
)
def test_other_names_and_values_are_left_out(key: str, value: Any) -> None:
    assert decoded(json.dumps({key: value, "cpu.user": 1})) == {"cpu.user": 1}
    assert decoded(encoded({key: value})) == {}


@pytest.mark.parametrize("text", ["", "{", "[]", "1", "[" * 100_000])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decoded(text)


def test_a_launcher_cannot_send_values_without_end() -> None:
    found = {
        f"{kind}.{index}.{name}": 1 for kind, name in (("vcpu", "time"), ("vcpu", "wait"), ("block", "fl.reqs")) for index in range(1000)
    }
    found |= {f"{kind}.{index}.rx.bytes": 1 for kind in ("net",) for index in range(1000)} | {
        f"net.{each}.tx.bytes": 1 for each in range(1000)
    }
    assert len(found) > MAX_VALUES
    assert len(decoded(json.dumps(found))) == MAX_VALUES
