from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.booting import HELD_SECONDS, Slots, begin_with, boots_slowly
from tests.cluster.manifests import linux_vm, tiny_vm


def slots(directory: Path, held_seconds: float = HELD_SECONDS) -> Slots:
    return Slots(directory / "cache" / "lock", held_seconds=held_seconds)


def test_two_processes_boot_guests_and_a_third_one_waits(tmp_path: Path) -> None:
    first, second, third = (slots(tmp_path) for _ in range(3))
    first.begin()
    second.begin()
    waiting = threading.Thread(target=third.begin)
    waiting.start()
    time.sleep(0.3)
    assert (first.is_held, second.is_held, third.is_held) == (True, True, False)
    second.end()
    waiting.join(10)
    assert third.is_held
    third.end()
    first.end()


def test_process_boots_further_guests_in_its_slot(tmp_path: Path) -> None:
    one, other, third = (slots(tmp_path) for _ in range(3))
    other.begin()
    one.begin()
    one.begin()
    one.end()
    one.end()
    assert not one.is_held
    third.begin()
    for each in (other, third):
        each.end()


def test_a_slot_is_given_back_by_itself_after_a_while(tmp_path: Path) -> None:
    one, other, third = slots(tmp_path, 0.1), slots(tmp_path, 0.1), slots(tmp_path)
    one.begin()
    other.begin()
    third.begin()
    assert not (one.is_held and other.is_held)
    third.end()


def test_slot_ends_soon_after_qemu_started_unless_extended(tmp_path: Path) -> None:
    one, other = slots(tmp_path), slots(tmp_path)
    one.end_soon(0.1)
    assert not one.is_held
    for each in (one, other):
        each.begin()
        each.end_soon(0.2)
    other.begin()
    third = slots(tmp_path)
    third.begin()
    assert (one.is_held, other.is_held) == (False, True)
    for each in (other, third):
        each.end()


@pytest.mark.parametrize(
    ("domain", "slowly"),
    [
        (linux_vm("a")["spec"]["domain"], True),
        (tiny_vm("a")["spec"]["domain"], False),
        ({"devices": {}}, True),
        ({"firmware": {"bootloader": "UEFI"}}, True),
    ],
    ids=["Linux", "tiny", "a disk", "UEFI"],
)
def test_every_guest_but_the_tiny_one_boots_slowly(domain: dict[str, Any], *, slowly: bool) -> None:
    assert boots_slowly(domain) is slowly


@pytest.mark.parametrize(
    ("manifest", "begins"),
    [
        (linux_vm("a"), True),
        ({"kind": "List", "items": [tiny_vm("a"), linux_vm("b", runStrategy="Once")]}, True),
        (linux_vm("a", runStrategy="Halted"), False),
        (linux_vm("a", runStrategy="Manual"), False),
        (tiny_vm("a"), False),
        ({"kind": "Pod", "spec": None}, False),
    ],
    ids=["starts", "in a list", "halted", "manual", "tiny", "a pod"],
)
def test_a_machine_that_starts_at_once_takes_a_slot(tmp_path: Path, manifest: dict[str, Any], *, begins: bool) -> None:
    own = slots(tmp_path)
    begin_with(manifest, own)
    assert own.is_held is begins
    own.end()
