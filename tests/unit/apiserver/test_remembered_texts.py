"""Caches keep only short texts from clients: thousands of 1 MB would fill the memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import cast

import pytest

from apiserver.apis.meta import names
from apiserver.apis.meta.errors import NotAcceptable
from apiserver.apis.meta.managedfields import elements
from apiserver.apis.meta.quantity import parse as parse_quantity
from apiserver.apis.virt.domainxml.sizes import SIZES
from apiserver.apis.virt.hardware import clock
from apiserver.endpoints import negotiation, requestinfo
from apiserver.endpoints.http.heads import Heads
from apiserver.endpoints.http.messages import Request, query_of

SIZE, COUNT = 100_000, 40

HEADS = Heads()


MEMOS: dict[str, Callable[[str], object]] = {
    "attributes of a request": lambda text: requestinfo.of(cast("Request", Heads().read(f"GET /apis/{text} HTTP/1.1\r\nHost: h".encode()))),
    "Accept": lambda text: negotiation.negotiate(f"application/json;x={text}"),
    "Accept, for people": lambda text: negotiation.accepts_pretty(f"application/json;x={text}"),
    "head": lambda text: HEADS.read(f"GET / HTTP/1.1\r\nHost: h\r\nx: {text}".encode()),
    "query": lambda text: query_of(f"/?x={text}"),
    "step of managed fields": lambda text: elements.canonical(f'v:"{text}"'),
    "order of such steps": lambda text: elements.rank(f'k:{{"name":"{text}"}}'),
    "message about such a step": lambda text: elements.show(f'v:"{text}"'),
    "key of a label": lambda text: names.are_qualified_names([text]),
    "time zone": clock.is_zone,
    "quantity": parse_quantity,
    "size of domain XML": SIZES.of,
}


@pytest.mark.parametrize("memo", MEMOS)
def test_a_long_text_is_not_remembered(memo: str) -> None:
    ask = MEMOS[memo]
    tracemalloc.start()
    try:
        for number in range(COUNT):
            with suppress(ValueError, NotAcceptable):
                ask(f"{number:0{SIZE}}")
        assert tracemalloc.get_traced_memory()[0] < COUNT * SIZE // 4
    finally:
        tracemalloc.stop()
