from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.meta.objects import condition
from handler.reconcilers.guests.shared_filesystems import loss, with_filesystems
from launcher.protocol.messages import Status

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_vm(*names: str) -> dict[str, Any]:
    filesystems = [{"name": each, "type": "ConfigMap", "source": {"name": "c"}} for each in names]
    return {"metadata": {"generation": 3}, "spec": {"domain": {"devices": {"filesystems": filesystems}}}, "status": {}}


@pytest.mark.parametrize(
    ("lost", "expected", "named"),
    [
        ((), ("True", "Served"), ""),
        (("made-up\n",), ("True", "Served"), ""),
        (("two", "made-up", "one"), ("False", "FilesystemLost"), "file system one, two: "),
    ],
)
def test_unserved_file_system_is_a_condition(lost: tuple[str, ...], expected: tuple[str, str], named: str) -> None:
    found = condition(
        with_filesystems(a_vm("one", "two", "three"), {}, Status(1, lost_filesystems=lost), NOW)["conditions"], "FilesystemsReady"
    )
    assert found is not None
    assert (found["status"], found["reason"], found["observedGeneration"]) == (*expected, 3)
    assert found["message"].startswith(named)
    assert "made-up" not in found["message"]


def test_no_condition_without_file_systems_or_for_ending_guests() -> None:
    for vm, status in ((a_vm(), Status(1, lost_filesystems=("x",))), (a_vm("x"), Status(1, stopping=True))):
        assert with_filesystems(vm, {"a": 1}, status, NOW) == {"a": 1}


def test_a_loss_is_news_once() -> None:
    vm, one, two = a_vm("one", "two"), Status(1, lost_filesystems=("one",)), Status(2, lost_filesystems=("one", "two"))
    served, first = with_filesystems(vm, {}, Status(0), NOW), with_filesystems(vm, {}, one, NOW)
    assert (loss(vm, served), loss(vm, {})) == ("", "")
    assert loss(vm, first).startswith("file system one: ")
    stored = {**vm, "status": first}
    assert loss(stored, first) == ""
    assert loss(stored, with_filesystems(stored, first, two, NOW)).startswith("file system one, two: ")
