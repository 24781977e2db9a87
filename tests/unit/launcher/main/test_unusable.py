from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.main.decisions.refusal import RequestRefused
from launcher.protocol import messages
from tests.unit.launcher.main.world import MACHINE, World

DISK: dict[str, Any] = {"name": "files", "type": "Secret", "source": {"name": "s"}}
EFI: dict[str, Any] = {"bootloader": {"efi": {"secureBoot": False, "persistent": True}}, "persistentState": {"claimName": "c"}}


@pytest.mark.parametrize(
    ("domain", "told"),
    [
        ({"devices": {"disks": [DISK]}}, "disk 'files': Secret: it is not mounted"),
        ({"firmware": EFI}, "u-1: File exists"),
        ({"clock": {"timezone": "Middle/Earth"}}, "clock.timezone: time zone 'Middle/Earth' not found"),
        (
            {"firmware": {"kernelBoot": {"container": {"kernelPath": "/boot/nothere"}}}},
            "firmware.kernelBoot.container.kernelPath: file /boot/nothere not found in its image",
        ),
    ],
    ids=["Secret", "state", "zone", "kernel"],
)
async def test_a_start_that_cannot_be_is_told_and_ends_the_pod(
    world: World, tmp_path: Path, pod_directories: Callable[..., None], domain: dict[str, Any], told: str
) -> None:
    for name in ("SOURCES", "MADE", "STATE"):
        pod_directories(**{name: tmp_path / name})
        (tmp_path / name).mkdir()
    (tmp_path / "STATE/u-1").touch()
    machine = dataclasses.replace(MACHINE, domain={**MACHINE.domain, **domain})

    with pytest.raises(RequestRefused) as refused:
        await world.domain.handle(messages.Sync(machine))
    assert (refused.value.reason, told in str(refused.value)) == ("Failed", True), str(refused.value)
    await world.ends("start-failed")
    assert world.status.ending is not None
    assert told in world.status.ending.message
    assert world.hypervisor.domains == {}
