"""AUD-01: source addresses in events."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

from apiserver.endpoints.audit import sources
from apiserver.endpoints.http.heads import Fields, Head
from apiserver.endpoints.http.messages import Request


class Peer:
    remote = "192.0.2.9"


def request(*headers: tuple[str, str]) -> Request:
    carrier: Any = Peer()
    return Request(Head("GET", "/", Fields([("Host", "h"), *headers]), old=False), carrier)


def told(*headers: tuple[str, str]) -> dict[str, Any]:
    text = sources.of(request(*headers))
    assert sources.of(request(*headers)) == text
    read: dict[str, Any] = json.loads(f"{{{text[1:]}}}")
    return read


def test_every_station_is_told_in_its_order() -> None:
    headers = ("X-Forwarded-For", "192.0.2.1, 2001:db8::1"), ("X-Forwarded-For", "192.0.2.3"), ("X-Real-Ip", " 192.0.2.4")
    assert told(*headers) == {"sourceIPs": ["192.0.2.1", "2001:db8::1", "192.0.2.3", "192.0.2.4", "192.0.2.9"]}


def test_no_station_is_told_twice_in_a_row_and_only_addresses_are() -> None:
    headers = ("X-Forwarded-For", "nobody, 192.0.2.1,, fe80::1%eth0, 192.0.2.9"), ("X-Real-Ip", "192.0.2.1")
    assert told(*headers) == {"sourceIPs": ["192.0.2.1", "192.0.2.9"]}


def test_a_request_without_such_fields_came_from_its_client() -> None:
    assert told() == {"sourceIPs": ["192.0.2.9"]}


def test_of_very_many_stations_the_last_are_told() -> None:
    way = [f"198.51.100.{each}" for each in range(40)]
    assert told(("X-Forwarded-For", ",".join(way)))["sourceIPs"] == [*way[-32:], "192.0.2.9"]


def test_the_clients_name_is_told_and_a_long_one_is_cut() -> None:
    assert told(("User-Agent", 'curl "8"\x00'))["userAgent"] == 'curl "8"\x00'
    assert told(("User-Agent", "x" * 5000))["userAgent"] == "x" * 1024 + "...TRUNCATED"


def test_long_fields_fill_no_memory() -> None:
    size, count = 100_000, 50
    tracemalloc.start()
    try:
        for each in range(count):
            text = f"{each:0{size}}"
            sources.of(request(("X-Forwarded-For", text), ("X-Real-Ip", text), ("User-Agent", text)))
        assert tracemalloc.get_traced_memory()[0] < count * size // 4
    finally:
        tracemalloc.stop()
