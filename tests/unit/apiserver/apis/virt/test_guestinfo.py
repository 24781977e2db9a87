from __future__ import annotations

import json
from typing import Any, Final

import pytest

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.spec import guestinfo
from apiserver.apis.virt.spec.guestinfo import Items, bounded, fitted, has_more

MOST: Final = (1 << 63) - 1
MOMENT: Final = "2126-01-01T00:00:00Z"


def kept(field: str, value: object) -> Any:
    return bounded({field: value}).get(field)


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("x" * 253, "x" * 253),
        ("a\x1b[2J\nb", "a[2J | b"),
        ("", None),
        ("\n\x00", None),
        (1, None),
        (None, None),
        (["x"], None),
    ],
)
def test_a_text_is_one_line_that_is_not_empty(value: object, left: object) -> None:
    assert kept("hostname", value) == left


def test_a_text_is_cut() -> None:
    found = kept("hostname", "x" * 254)
    assert len(found) == 253
    assert found.startswith("x" * 250)


@pytest.mark.parametrize(
    ("value", "left"),
    [(MOST, MOST), (-MOST, -MOST), (MOST + 1, None), (-MOST - 1, None), (0, 0), (True, None), (1.0, None), ("1", None), (None, None)],
)
def test_a_number_has_64_bits(value: object, left: object) -> None:
    assert kept("timezone", {"name": "UTC", "offsetSeconds": value}) == {"name": "UTC"} | ({} if left is None else {"offsetSeconds": left})


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        (MOMENT, True),
        ("2126-01-01T00:00:00.5+02:00", True),
        ("yesterday", False),
        ("", False),
        (0, False),
        (None, False),
        (f"{MOMENT[:-1]}.{'0' * 19}Z", True),
        (f"{MOMENT[:-1]}.{'0' * 20}Z", False),
    ],
)
def test_a_moment_is_one(value: object, *, is_one: bool) -> None:
    assert kept("time", value) == (value if is_one else None)


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("FD00::0:1", "fd00::1"),
        ("fe80::1%eth0", None),
        ("x", None),
        ("", None),
        (1, None),
        (None, None),
        (" " * 64 + "::1", None),
    ],
)
def test_an_address_is_one(value: object, left: str | None) -> None:
    found = kept("interfaces", [{"device": "eth0", "ipAddresses": [value]}])
    assert found == [{"device": "eth0"} | ({} if left is None else {"ipAddresses": [left]})]


def lists(shape: object, path: str = "") -> list[tuple[str, Items]]:
    match shape:
        case Items():
            return [(path, shape), *lists(shape.of, path)]
        case dict():
            return [found for field, of in shape.items() for found in lists(of, f"{path}.{field}")]
        case _:
            return []


def test_every_list_has_a_bound_that_holds() -> None:
    assert {path: each.limit for path, each in lists(guestinfo.FIELDS)} == {
        ".agent.commands": 256,
        ".users": 64,
        ".filesystems": 64,
        ".filesystems.disks": 8,
        ".interfaces": 64,
        ".interfaces.ipAddresses": 16,
        ".applications": 2000,
        ".unavailable": 16,
        ".truncated": 16,
    }
    assert len(kept("users", [{"userName": "x"}] * 65)) == 64
    assert len(kept("users", [{"userName": "x"}] * 64)) == 64
    assert kept("users", [1, {}, {"userName": "x"}, {"userName": 1}]) == [{"userName": "x"}]
    nothing: tuple[object, ...] = ([], [{}], {"userName": "x"}, "x", None)
    assert [kept("users", each) for each in nothing] == [None] * 5


def test_that_there_is_more_of_a_list_is_known() -> None:
    assert [has_more("users", [{}] * count) for count in (0, 64, 65)] == [False, False, True]
    assert not has_more("users", "x" * 99)
    assert not has_more("hostname", [{}] * 5000)


def quoted(info: object) -> int:
    return len(json.dumps(json.dumps(info, ensure_ascii=False), ensure_ascii=False).encode())


def test_small_guest_info_stays_complete() -> None:
    info = {"users": [{"userName": "x"}] * 64, "hostname": "y"}
    assert fitted(info) == info
    assert fitted({}) == {}


def test_the_longest_list_is_halved_until_all_is_short_enough() -> None:
    long = [{"name": '"' * 100, "version": "ä" * 128}] * 2000
    info: Object = {"users": [{"userName": "x"}] * 64, "applications": long, "truncated": ["users"]}
    found = fitted(info)
    assert quoted(found) <= guestinfo.MAX_BYTES < quoted({**info, "applications": long[: 2 * len(found["applications"])]})
    assert (found["users"], found["truncated"]) == (info["users"], ["applications", "users"])
    assert len(info["applications"]) == 2000


def test_of_two_long_lists_both_are_cut() -> None:
    info = {
        "applications": [{"name": "x" * 128}] * 1500,
        "filesystems": [{"mountPoint": "y" * 256, "disks": [{"device": "z" * 64}] * 8}] * 600,
    }
    found = fitted(info)
    assert quoted(found) <= guestinfo.MAX_BYTES
    assert found["truncated"] == ["applications", "filesystems"]


@pytest.mark.parametrize("text", ["", "[]", "1", "null", "{", "[" * 100_000, '{"a":' * 100_000])
def test_a_text_that_is_no_object_is_told(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # json's own among them
        guestinfo.parse(text)
    assert guestinfo.parse('{"hostname": "x", "other": 1}') == {"hostname": "x"}
