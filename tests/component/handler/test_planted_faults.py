"""An unexpected fault with one object affects no other."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controller.runtime.recorder import Recorder
from handler.agent import Agent
from handler.plugins.calling import Plugins
from handler.plugins.records import Record, Records
from handler.probes.asking import Question
from handler.reconcilers.guests.run_guest import RunGuest
from handler.reconcilers.migrations.migrate_source import MigrateSource
from handler.reconcilers.migrations.migrate_target import MigrateTarget
from handler.reconcilers.migrations.report_progress import ReportProgress
from tests.component.handler.live import NODE, Live, live
from tests.component.handler.world import MIGS, VMS, eventually
from tests.hostile import a_full_migration
from tests.unit.handler.reconcilers.builders import a_vm

POD = "pod-faulty"
PROMPT_SECONDS = 20.0


class Planted(Exception):
    pass


@dataclass(frozen=True)
class Plant:
    part: type
    name: str
    is_faulty: Callable[..., bool]


PLANTS = {
    "probes": Plant(Question, "ask", lambda _, link: link.pod_uid == POD),
    "links": Plant(Live, "identify", lambda _, __, pod_uid: pod_uid == POD),
    "loop of machines": Plant(RunGuest, "reconcile", lambda _, request: request.name == "faulty"),
    "loop of migrations away": Plant(MigrateSource, "reconcile", lambda _, request: request.name == "faulty"),
    "loop of migrations here": Plant(MigrateTarget, "reconcile", lambda _, request: request.name == "faulty"),
    "loop of progress": Plant(ReportProgress, "reconcile", lambda _, request: request.name == "faulty"),
    "events": Plant(Recorder, "_send", lambda _, waiting: waiting.reference["name"] == "faulty"),
    "deletion of what plugins added": Plant(Plugins, "call", lambda _, __, name, *___: name == "faulty"),
    "delivery of objects": Plant(Agent, "_machine_changed", lambda _, vm: vm is not None and vm["metadata"]["name"] == "faulty"),
}


@pytest.mark.parametrize("part", PLANTS)
async def test_fault_of_one_object_is_contained_in_every_part(
    tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    plant, met = PLANTS[part], 0
    sound = getattr(plant.part, plant.name)

    def planted(*given: Any) -> Any:
        nonlocal met
        if plant.is_faulty(*given):
            met += 1
            raise Planted
        return sound(*given)

    # Production code has no hook for unexpected faults.
    monkeypatch.setattr(plant.part, plant.name, planted)
    Records(tmp_path / "records" / NODE).write(Record("network", str(uuid.UUID(int=1)), "lan", "faulty", {}))
    async with live(tmp_path) as world:
        await world.launcher(POD)
        await world.api.put(VMS, a_machine())
        migration = a_full_migration()
        migration["metadata"]["name"] = "faulty"
        migration["spec"]["selector"]["name"] = "faulty"
        await world.api.put(MIGS, migration)
        await eventually(lambda: met > 0, PROMPT_SECONDS)
        await world.healthy_machine_follows(PROMPT_SECONDS)
    assert any(record.exc_info and isinstance(record.exc_info[1], Planted) for record in caplog.records)


def a_machine() -> dict[str, Any]:
    vm = a_vm(podUID=POD)
    vm["metadata"] = {"name": "faulty", "namespace": "default", "uid": "uid-of-faulty", "generation": 1}
    vm["spec"]["readinessProbe"] = {"tcpSocket": {"port": 80}, "periodSeconds": 1}
    return vm


@pytest.mark.parametrize(
    "probe",
    [
        {"tcpSocket": {"port": 70_000}, "periodSeconds": 1},
        {"httpGet": {"port": -1}, "periodSeconds": 0, "timeoutSeconds": 0},
        {"tcpSocket": {"port": 80}, "initialDelaySeconds": 2**31 - 1},
    ],
)
async def test_a_probe_that_virt_api_would_refuse_ends_no_virt_handler(tmp_path: Path, probe: dict[str, Any]) -> None:
    async with live(tmp_path) as world:
        await world.launcher(POD)
        vm = a_machine()
        vm["spec"] |= {"readinessProbe": probe, "livenessProbe": probe}
        await world.api.put(VMS, vm)
        await eventually(lambda: world.vm("faulty")["status"]["phase"] == "Running", PROMPT_SECONDS)
        await world.healthy_machine_follows(PROMPT_SECONDS)
        (ready,) = [each for each in world.vm("faulty")["status"]["conditions"] if each["type"] == "Ready"]
        assert ready["status"] == "False"
