from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.meta.errors import BadRequest
from apiserver.registry.cacher.items import Item
from apiserver.registry.generic import listing
from apiserver.registry.generic.listing import Position, decode_token, encode_token, parse_revision


def token(**fields: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).rstrip(b"=").decode()


@given(st.integers(1, 2**62) | st.just(-1), st.from_regex(r"\A[a-z0-9]{1,20}/[a-z0-9-]{1,20}\Z"))
def test_a_token_brings_back_its_position(revision: int, start: str) -> None:
    position = Position(revision, start + "\0")
    assert decode_token(encode_token(position)) == position


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "",
        "é",
        "a" * 5000,
        token(v="v0", rv=1, start="a"),
        token(v="meta.k8s.io/v1", rv="1", start="a"),
        token(v="meta.k8s.io/v1", rv=True, start="a"),
        token(v="meta.k8s.io/v1", rv=0, start="a"),
        token(v="meta.k8s.io/v1", rv=-2, start="a"),
        token(v="meta.k8s.io/v1", rv=-20, start="a"),
        token(v="meta.k8s.io/v1", rv=2**70, start="a"),
        token(v="meta.k8s.io/v1", rv=1, start=""),
        token(v="meta.k8s.io/v1", rv=1, start="/a"),
        token(v="meta.k8s.io/v1", rv=1, start="../../x"),
        token(v="meta.k8s.io/v1", rv=1, start=5),
        base64.urlsafe_b64encode(b"[]").decode(),
    ],
)
def test_foreign_continue_tokens_are_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        decode_token(text)


@given(st.text())
def test_no_text_breaks_the_decoder(text: str) -> None:
    try:
        decode_token(text)
    except BadRequest:
        return


def test_revisions_are_decimal_numbers() -> None:
    assert (parse_revision(""), parse_revision("0"), parse_revision("12")) == (0, 0, 12)
    for text in ("-1", "x", "1.5", "٣", "1" * 30):
        with pytest.raises(BadRequest):
            parse_revision(text)


class _Even:
    """A selection of every second item, with enough terms to take a while."""

    number = 1000

    def among(self, items: list[Item], known: dict[bytes, bool]) -> list[Item]:
        assert len(items) <= 50
        known[b"asked"] = True
        return items[::2]


async def test_matching_many_objects_yields_to_other_tasks() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    items = [Item(f"/w/{number:03}", number, None, b"{}") for number in range(120)]
    selection: Any = _Even()
    async with asyncio.TaskGroup() as tasks:
        counting = tasks.create_task(count())
        found = await listing._selected(selection, items)
        counting.cancel()
    assert [item.revision for item in found] == list(range(0, 120, 2))
    assert turns >= 2
