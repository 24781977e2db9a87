from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from apiserver.apis.meta import errors, objects
from apiserver.apis.virt.lifecycle import power
from handler.devices.ownership import NotTheDevice
from handler.network.binding import Unsupported
from handler.network.namespaces import CommandFailed
from handler.plugins.faults import Failed, NotFound, TimedOut
from handler.plugins.records import Record
from handler.reconcilers.guests import guest_status
from launcher.protocol import messages
from tests.component.handler.world import EVENTS, VMS, World, eventually, phase_is
from tests.unit.handler.reconcilers.builders import NOW, a_pause, a_request, a_vm, an_operation


async def test_a_start_writes_the_machine_once(world: World) -> None:
    await world.vm()
    async with world.handler() as handler:
        await asyncio.sleep(0.2)
        launcher = await world.launcher("pod-1")
        await eventually(lambda: phase_is(world, "Running"))
        launcher.change(consoles=1)
        await asyncio.sleep(0.3)

    assert world.writes() == 1
    assert launcher.starts == 1
    assert handler.node.given == 1
    assert handler.node.wired == 1
    assert world.status()["interfaces"][0]["ipAddress"] == "10.244.0.5"
    assert world.events() == ["Started"]


async def test_a_start_waits_for_the_plugin_of_a_disk_and_says_which(world: World) -> None:
    vm = a_vm()
    del vm["metadata"]["resourceVersion"]
    source = {"plugin": "absent", "options": {"image": "a"}}
    vm["spec"]["domain"]["devices"]["disks"].append({"name": "data", "type": "Plugin", "source": source})
    await world.api.put(VMS, vm)
    async with world.handler():
        launcher = await world.launcher("pod-1")
        await eventually(lambda: world.events() == ["PluginNotFound"])
        told = objects.condition(world.status()["conditions"], "DisksReady") or {}
        assert (told["status"], told["reason"], world.status()["phase"]) == ("False", "PluginNotFound", "Scheduled")
        assert "disk 'data': plugin absent is not on this node" in told["message"]
        assert launcher.starts == 0
        await world.api.edit(VMS, "default", "testvm", lambda vm: vm["status"].update(request=a_request("Stop")))
        await eventually(lambda: phase_is(world, "Stopped"))
    assert objects.condition(world.status()["conditions"], "DisksReady") is None


async def test_guest_agent_answers_are_written_once_a_minute(world: World) -> None:
    await world.vm()
    async with world.handler():
        launcher = await world.launcher("pod-1")
        await eventually(lambda: phase_is(world, "Running"))
        launcher.change(agent=messages.AgentStatus(connected=True, hostname="guest"))
        await eventually(lambda: (world.status().get("guest") or {}).get("hostname") == "guest")
        for number in range(20):
            launcher.change(agent=messages.AgentStatus(connected=number % 2 == 0, hostname=f"guest{number}"))
        await asyncio.sleep(0.3)

    assert world.writes() == 2
    assert objects.is_true(world.status()["conditions"], "AgentConnected")


async def test_restarted_handler_relearns_the_state_and_starts_nothing(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
    writes = world.writes()
    async with world.handler() as again:
        await eventually(lambda: again.node.wired == 1)
        await asyncio.sleep(0.2)

    assert launcher.starts == 1
    assert world.writes() == writes
    assert [type(each) for each in launcher.received] == [messages.Sync]


async def test_a_start_passes_the_nodes_cache_of_qemus_capabilities(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        handler.node.accelerators = {"pod-1": "kvm"}
        await eventually(lambda: phase_is(world, "Running"))
    assert [each.capabilities for each in launcher.received if isinstance(each, messages.Sync)] == ["<kvm/>"]


async def test_edited_phase_is_corrected_without_repeated_events(world: World) -> None:
    await world.vm()
    await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running") and world.events() == ["Started"])
        await world.api.edit(VMS, "default", "testvm", lambda obj: obj["status"].update(phase="Scheduled"))
        await eventually(lambda: phase_is(world, "Running"))
        await asyncio.sleep(0.2)

    assert [(each["reason"], each["count"]) for each in world.api.all("/api/v1/events")] == [("Started", 1)]


async def test_a_broken_connection_is_made_again_and_changes_nothing(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        await eventually(lambda: phase_is(world, "Running"))
        launcher.hang_up()
        await eventually(lambda: (link := handler.links.get("pod-1")) is not None and link.connection is None)
        launcher.status = launcher.status
        await eventually(lambda: (link := handler.links.get("pod-1")) is not None and link.connection is not None)

    assert launcher.starts == 1
    assert world.writes() == 1


@pytest.mark.parametrize(
    ("kind", "phase", "event"),
    [("shutdown", "Succeeded", "GuestPoweredOff"), ("crashed", "Failed", "Crashed"), ("destroyed", "Stopped", "PoweredOff")],
)
async def test_the_end_of_a_guest_is_written_with_its_reason(world: World, kind: messages.EndingKind, phase: str, event: str) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        await eventually(lambda: phase_is(world, "Running"))
        launcher.end(kind, "last words")
        launcher.exit()
        await eventually(lambda: phase_is(world, phase) and event in world.events())
        await eventually(lambda: len(handler.links) == 0)

    attempt = world.status()["attempts"][0]
    assert attempt["message"] == "last words"
    assert attempt["endTime"]


async def test_killed_launcher_ends_the_attempt(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        launcher.exit()
        await eventually(lambda: phase_is(world, "Failed"))

    assert world.status()["attempts"][0]["result"] == "Failed"


async def test_stop_shuts_the_guest_down_and_says_so_first(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        await world.api.edit(VMS, "default", "testvm", lambda vm: vm["status"].update(request=a_request("Stop")))
        await eventually(lambda: phase_is(world, "Stopping"))
        launcher.end("shutdown-requested")
        await eventually(lambda: phase_is(world, "Stopped"))

    assert [each for each in launcher.received if isinstance(each, messages.Shutdown)] == [messages.Shutdown(30.0)]
    assert world.writes() == 3


async def test_shortened_grace_period_is_sent_once_across_restarts(world: World) -> None:
    def sent() -> list[messages.Action | messages.Read]:
        return [each for each in launcher.received if isinstance(each, messages.Shutdown)]

    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        await world.api.edit(VMS, "default", "testvm", lambda vm: vm["status"].update(request=a_request("Stop")))
        await eventually(lambda: phase_is(world, "Stopping"))
        await world.api.edit(VMS, "default", "testvm", lambda vm: vm["spec"].update(terminationGracePeriodSeconds=3))
        await eventually(lambda: messages.Shutdown(3.0) in sent())
    await world.api.edit(VMS, "default", "testvm", lambda vm: vm["spec"].update(terminationGracePeriodSeconds=2))
    async with world.handler():
        await eventually(lambda: messages.Shutdown(2.0) in sent())
        launcher.end("destroyed")
        await eventually(lambda: phase_is(world, "Stopped"))
    assert sent() == [messages.Shutdown(30.0), messages.Shutdown(3.0), messages.Shutdown(2.0)]


async def test_a_start_that_is_slow_is_asked_for_once(world: World) -> None:
    world.limits = replace(world.limits, start_patience_seconds=0.05)
    await world.vm()
    launcher = await world.launcher("pod-1")
    launcher.starting = asyncio.Event()
    async with world.handler():
        await eventually(lambda: bool(launcher.received))
        await asyncio.sleep(0.3)
        launcher.starting.set()
        await eventually(lambda: phase_is(world, "Running"))
        assert [type(each) for each in launcher.received] == [messages.Sync]


async def test_hanging_start_is_stopped_without_waiting(world: World) -> None:
    world.limits = replace(world.limits, start_patience_seconds=0.05)
    await world.vm()
    launcher = await world.launcher("pod-1")
    launcher.starting = asyncio.Event()
    async with world.handler():
        await eventually(lambda: bool(launcher.received))
        await world.api.edit(VMS, "default", "testvm", lambda vm: vm["status"].update(request=a_request("Stop")))
        await eventually(lambda: phase_is(world, "Stopped"))


def paused_reason(world: World) -> str:
    found = objects.condition(world.status().get("conditions"), "Paused") or {}
    return str(found.get("reason"))


async def ask(world: World, *found: dict[str, Any], **status: Any) -> None:
    await world.api.edit(VMS, "default", "testvm", lambda vm: vm["status"].update(operations=list(found), **status))


def result_of(world: World, operation_id: str = "a") -> tuple[str, str]:
    found: dict[str, str] = next((each for each in world.status().get("operations") or () if each["id"] == operation_id), {})
    return str(found.get("result") or ""), str(found.get("message") or "")


async def test_unpause_resumes_a_faulted_guest_once_per_request(world: World) -> None:
    await world.vm(request=a_request("Unpause"))
    launcher = await world.launcher("pod-1")

    def resumes() -> int:
        return sum(isinstance(each, messages.Operate | messages.Resume) for each in launcher.received)

    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        assert launcher.status.domain is not None
        launcher.relapse = "disk 'disk0': no space left"
        stopped = replace(launcher.status.domain, state="paused", reason="I/O error", detail=launcher.relapse)
        launcher.change(domain=stopped)
        await eventually(lambda: paused_reason(world) == "IOError")
        found = objects.condition(world.status()["conditions"], "Paused") or {}
        assert "disk 'disk0': no space left" in found["message"]
        assert resumes() == 0

        failed = an_operation("a", 1, "Resume")
        await ask(world, failed, pause=a_pause(wanted=False))
        await eventually(lambda: "ResumeFailed" in world.events())
        assert result_of(world) == ("Failed", "the guest stopped again immediately: disk 'disk0': no space left")
        await asyncio.sleep(0.2)
        assert resumes() == 1
        assert paused_reason(world) == "IOError"

        launcher.relapse = ""
        await ask(world, {**failed, "result": "Failed"}, an_operation("b", 2, "Resume"))
        await eventually(lambda: world.status()["domain"]["state"] == "running" and result_of(world, "b") == ("Succeeded", ""))
        await eventually(lambda: "Unpaused" in world.events())
    assert resumes() == 2
    assert paused_reason(world) == "Running"


async def test_unpause_during_a_handler_restart_is_obeyed_once(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        assert launcher.status.domain is not None
        launcher.change(domain=replace(launcher.status.domain, state="pmsuspended", reason="unknown"))
        await eventually(lambda: paused_reason(world) == "GuestSuspended")
    await ask(world, an_operation("a", 1, "Resume"))
    async with world.handler():
        await eventually(lambda: world.status()["domain"]["state"] == "running")
        launcher.change(domain=replace(launcher.status.domain, state="pmsuspended", reason="unknown"))
        await eventually(lambda: paused_reason(world) == "GuestSuspended")
    async with world.handler() as handler:
        await eventually(lambda: handler.node.wired == 1)
        await asyncio.sleep(0.2)
    assert launcher.status.domain.state == "pmsuspended"


@pytest.mark.parametrize("relapse", ["", "disk 'disk0': no space left"])
async def test_older_launcher_resumes_by_a_plain_request(world: World, relapse: str) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    launcher.operations = ()
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        assert launcher.status.domain is not None
        launcher.relapse = relapse
        launcher.change(domain=replace(launcher.status.domain, state="paused", reason="I/O error"))
        await eventually(lambda: paused_reason(world) == "IOError")
        await ask(world, an_operation("a", 1, "Resume"))
        await eventually(lambda: bool(result_of(world)[0]))
        assert result_of(world)[0] == ("Failed" if relapse else "Succeeded")
        await eventually(lambda: ("ResumeFailed" if relapse else "Unpaused") in world.events())
        await asyncio.sleep(0.2)
    assert sum(isinstance(each, messages.Resume) for each in launcher.received) == 1


async def test_reset_is_done_once_with_result_and_event(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        await ask(world, an_operation("a", 1))
        await eventually(lambda: result_of(world) == ("Succeeded", ""))
        assert world.status()["operations"][0]["completionTime"]
        await eventually(lambda: "Reset" in world.events())
        await asyncio.sleep(0.2)
    async with world.handler() as again:
        await eventually(lambda: again.node.wired == 1)
        await asyncio.sleep(0.2)
    assert launcher.resets == 1
    assert [each["count"] for each in world.api.all(EVENTS) if each["reason"] == "Reset"] == [1]
    assert "Rebooted" not in world.events()


async def test_a_reset_of_a_paused_guest_leaves_it_paused(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        await ask(world, an_operation("a", 1), pause=a_pause())
        await eventually(lambda: result_of(world) == ("Succeeded", "") and paused_reason(world) == "User")
        await asyncio.sleep(0.1)
    sent = [type(each) for each in launcher.received]
    assert sent == [messages.Sync, messages.Suspend, messages.Operate]


async def test_reset_during_a_handler_restart_is_not_lost(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
    await ask(world, an_operation("a", 1))
    async with world.handler():
        await eventually(lambda: result_of(world) == ("Succeeded", ""))
    assert launcher.resets == 1


@pytest.mark.parametrize("answered", [False, True], ids=["before the answer", "after the answer"])
async def test_handler_killed_before_the_result_repeats_nothing(world: World, *, answered: bool) -> None:
    """The launcher reset the guest. Its answer is lost, or the API takes no result, and virt-handler is killed."""
    await world.vm()
    launcher = await world.launcher("pod-1")
    judge = world.api.judge

    def away(*_write: object) -> None:
        raise errors.ServiceUnavailable("etcd is away")

    def unanswered(request: messages.Action) -> tuple[messages.RefusalReason, str] | None:
        found = launcher._carry_out(request)
        launcher.hang_up()
        return found

    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        await ask(world)
        world.api.judge = away
        launcher.instead = None if answered else unanswered
        await ask(world, an_operation("a", 1))
        await eventually(lambda: launcher.resets == 1)
        await asyncio.sleep(0.1)
    assert result_of(world) == ("", "")
    world.api.judge, launcher.instead = judge, None
    async with world.handler():
        await eventually(lambda: result_of(world) == ("Succeeded", ""))
        await eventually(lambda: "Reset" in world.events())
        await asyncio.sleep(0.2)
    assert launcher.resets == 1


async def test_a_successor_waits_for_a_reset_that_is_still_carried_out(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
    await ask(world, an_operation("a", 1))
    launcher.change(operations=(messages.OperationStatus("a", 1, "running"),))
    async with world.handler() as again:
        await eventually(lambda: again.node.wired == 1)
        await asyncio.sleep(0.2)
        assert result_of(world) == ("", "")
        launcher.change(operations=(messages.OperationStatus("a", 1, "failed", "nobody knows"),))
        await eventually(lambda: result_of(world) == ("Failed", "nobody knows"))
        await eventually(lambda: "ResetFailed" in world.events())
    assert launcher.resets == 0


async def test_reset_forgotten_by_the_launcher_fails_without_retry(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    launcher.change(operations=(messages.OperationStatus("b", 2, "succeeded"),))
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        await ask(world, an_operation("a", 1))
        await eventually(lambda: result_of(world) == ("Failed", "a later operation was already carried out"))
    assert launcher.resets == 0


async def test_older_launcher_fails_a_reset_with_advice(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    launcher.operations = ()
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        await ask(world, an_operation("a", 1))
        await eventually(lambda: result_of(world)[0] == "Failed")
        assert "restart or migrate the machine" in result_of(world)[1]
        await eventually(lambda: "ResetFailed" in world.events())
    assert not any(isinstance(each, messages.Operate) for each in launcher.received)


@pytest.mark.parametrize("told", [True, False])
async def test_operation_of_an_ending_guest_gets_its_result_at_the_end(world: World, *, told: bool) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
    await ask(world, an_operation("a", 1))
    if told:
        launcher.change(operations=(messages.OperationStatus("a", 1, "succeeded"),))
    launcher.end("shutdown")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Succeeded"))
        assert result_of(world) == (("Succeeded", "") if told else ("Failed", "the attempt ended before the result was known"))
        await eventually(lambda: ("Reset" if told else "ResetFailed") in world.events())
    assert launcher.resets == 0


async def test_a_panic_ends_the_attempt_as_a_failure_and_is_told(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        launcher.change(domain=None, ending=messages.Ending("crashed", "the guest panicked", panicked=True))
        await eventually(lambda: phase_is(world, "Failed"))
        await eventually(lambda: "GuestPanicked" in world.events())
    attempt = world.status()["attempts"][-1]
    assert (attempt["result"], attempt["message"]) == ("Failed", f"the guest panicked; {guest_status.SEE_PANIC}")
    ready = objects.condition(world.status()["conditions"], "Ready") or {}
    assert ready["reason"] == "GuestPanicked"


async def test_guest_powered_off_by_its_watchdog_has_failed(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        launcher.change(domain=None, ending=messages.Ending("crashed", "the guest's watchdog fired", watchdog=True))
        await eventually(lambda: phase_is(world, "Failed"))
    ready = objects.condition(world.status()["conditions"], "Ready") or {}
    assert (ready["reason"], ready["message"]) == ("WatchdogFired", "the guest's watchdog fired")


@pytest.mark.parametrize(
    ("strategy", "on"), [("Always", True), ("RerunOnFailure", True), ("Once", False), ("Manual", False), ("Halted", False)]
)
def test_after_a_panic_the_strategy_decides(strategy: str, *, on: bool) -> None:
    vm = a_vm("Running")
    vm["spec"]["runStrategy"] = strategy
    vm["status"]["attempts"][0]["runningTime"] = "2026-11-21T07:59:05Z"
    end = guest_status.end_of(messages.Ending("crashed", "the guest panicked", panicked=True))
    assert end is not None
    assert power.decide({**vm, "status": guest_status.ended(vm, end, NOW)}).on is on


async def test_a_watchdog_that_fires_in_a_guest_that_goes_on_is_told(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        launcher.change(watchdogs=1)
        await eventually(lambda: "WatchdogFired" in world.events())
    assert "Rebooted" not in world.events()


async def test_disk_plugin_fault_of_a_running_guest_is_reported_once(world: World) -> None:
    await world.vm()
    await world.launcher("pod-1")
    world.records.write(Record("storage", "pod-1", "data", "absent", {"pod": {"uid": "pod-1"}, "disk": {"name": "data"}}))
    disk = {"name": "data", "type": "Plugin", "source": {"plugin": "absent", "options": {}}}

    async def pause(state: str) -> None:
        await ask(world, pause=a_pause(wanted=state == "paused"))
        await eventually(lambda: world.status()["domain"]["state"] == state)

    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        await world.api.edit(VMS, "default", "testvm", lambda vm: vm["spec"]["domain"]["devices"]["disks"].append(disk))
        await eventually(lambda: "PluginNotFound" in world.events())
        await pause("paused")
        await pause("running")
        found = objects.condition(world.status()["conditions"], "DisksReady") or {}
        assert (found["status"], found["reason"]) == ("False", "PluginNotFound")
        await pause("paused")
    assert [each.get("count", 1) for each in world.api.all(EVENTS) if each["reason"] == "PluginNotFound"] == [1]


async def test_lost_file_system_is_reported_once_and_the_guest_runs_on(world: World) -> None:
    await world.vm()
    filesystems = [{"name": "data", "type": "ConfigMap", "source": {"name": "c"}}]
    await world.api.edit(VMS, "default", "testvm", lambda obj: obj["spec"]["domain"]["devices"].update(filesystems=filesystems))
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: objects.is_true(world.status().get("conditions"), "FilesystemsReady"))
        launcher.change(lost_filesystems=("data",))
        await eventually(lambda: "FilesystemLost" in world.events())
        launcher.change(reboots=1)
        await eventually(lambda: "Rebooted" in world.events())
        found = objects.condition(world.status()["conditions"], "FilesystemsReady") or {}
        assert (found["status"], found["reason"]) == ("False", "FilesystemLost")
        assert phase_is(world, "Running")
        assert [each["count"] for each in world.api.all("/api/v1/events") if each["reason"] == "FilesystemLost"] == [1]
        launcher.end("shutdown")
        launcher.exit()
        await eventually(lambda: phase_is(world, "Succeeded"))
    assert objects.condition(world.status()["conditions"], "FilesystemsReady") is None


async def test_missing_passt_is_reported_until_it_returns(world: World) -> None:
    await world.vm()
    interfaces = [{"name": "default", "type": "passt", "ports": []}]
    await world.api.edit(VMS, "default", "testvm", lambda obj: obj["spec"]["domain"]["devices"].update(interfaces=interfaces))
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        launcher.change(passt_ends=1, passt_problem="passt ended with 1")
        await eventually(lambda: "PasstEnded" in world.events() and network(world)[1] == "NetworkNotReady")
        found = objects.condition(world.status()["conditions"], "NetworkReady") or {}
        assert (found["status"], found["reason"]) == ("False", "NetworkNotReady")
        assert found["message"].startswith("interface default: passt ended with 1; ")
        launcher.change(passt_problem="")
        await eventually(lambda: objects.is_true(world.status().get("conditions"), "NetworkReady"))
        assert phase_is(world, "Running")


async def test_reboots_are_told_and_those_before_this_process_are_not(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        launcher.change(reboots=1)
        await eventually(lambda: "Rebooted" in world.events())
    told = world.api.all("/api/v1/events")
    async with world.handler() as again:
        await eventually(lambda: again.node.wired == 1)
        await asyncio.sleep(0.2)
    assert len(world.api.all("/api/v1/events")) == len(told)


async def test_pause_and_unpause_reach_the_guest(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        for earlier in (False, True):
            for wanted, action, state in ((True, "Pause", "paused"), (False, "Unpause", "running")):
                told = {"request": a_request(action)} if earlier else {"pause": a_pause(wanted=wanted)}
                await ask(world, **told)
                await eventually(lambda state=state: world.status()["domain"]["state"] == state)  # type: ignore[misc]  # a default binds it

    assert [type(each) for each in launcher.received] == [messages.Sync, *[messages.Suspend, messages.Resume] * 2]


async def test_failed_domain_start_fails_the_attempt(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    launcher.refuse = "Cannot access storage file: Permission denied"
    async with world.handler():
        await eventually(lambda: phase_is(world, "Failed"))
        await eventually(lambda: "StartFailed" in world.events())

    assert world.status()["attempts"][0]["message"] == launcher.refuse


async def test_a_disk_that_is_no_device_gives_a_condition_and_an_event(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        handler.node.fault = NotTheDevice("disk0 contains a symbolic link")
        await eventually(lambda: handler.node.given > 2)
        await eventually(lambda: "DiskNotUsable" in world.events())
        assert [(each["type"], each["reason"]) for each in world.status()["conditions"]] == [("DisksReady", "DiskNotUsable")]
        assert launcher.starts == 0
        handler.node.fault = None
        await eventually(lambda: phase_is(world, "Running"))
    (event,) = (each for each in world.api.all(EVENTS) if each["reason"] == "DiskNotUsable")
    assert event.get("count", 1) == 1


async def test_guest_runs_through_an_api_outage_and_its_end_is_written(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
        world.api.refusals = [errors.ServiceUnavailable("etcd is away") for _ in range(6)]
        await world.api.cut()
        launcher.end("shutdown")
        await eventually(lambda: phase_is(world, "Succeeded"), seconds=20)

    assert launcher.starts == 1


async def test_claim_without_image_is_reported_once_and_awaited(world: World) -> None:
    world.limits = replace(world.limits, image_seconds=0.02)
    await world.vm()
    launcher = await world.launcher("pod-1")
    launcher.missing = ("disk0",)
    async with world.handler() as handler:
        await eventually(lambda: len(launcher.received) > 3)
        waiting = world.status()
        assert {each["type"]: (each["status"], each["reason"]) for each in waiting["conditions"]} == {
            "DisksReady": ("False", "DiskImageNotFound"),
            "Ready": ("False", "DisksNotReady"),
        }
        assert waiting["phase"] == "Scheduled"
        assert world.writes() == 1
        launcher.missing = ()
        await eventually(lambda: phase_is(world, "Running"))

    conditions = {each["type"]: each["status"] for each in world.status()["conditions"]}
    assert (conditions["DisksReady"], conditions["Ready"]) == ("True", "True")
    assert world.writes() == 2
    assert (handler.node.given, handler.node.wired, launcher.starts) == (1, 1, 1)
    assert [each for each in world.events() if each == "DiskImageNotFound"] == ["DiskImageNotFound"]


async def test_claim_without_room_is_reported_once_and_awaited(world: World) -> None:
    world.limits = replace(world.limits, image_seconds=0.02)
    await world.vm()
    launcher = await world.launcher("pod-1")
    launcher.missing, launcher.full = ("disk0",), True
    async with world.handler():
        await eventually(lambda: len(launcher.received) > 3)
        reasons = {each["type"]: (each["status"], each["reason"]) for each in world.status()["conditions"]}
        assert reasons == {"DisksReady": ("False", "ClaimTooSmall"), "Ready": ("False", "DisksNotReady")}
        launcher.missing = ()
        await eventually(lambda: phase_is(world, "Running"))

    assert world.writes() == 2
    assert world.events().count("ClaimTooSmall") == 1


async def a_machine_with(world: World, disk: dict[str, Any]) -> None:
    vm = a_vm()
    vm["spec"]["domain"]["devices"]["disks"] = [disk]
    del vm["metadata"]["resourceVersion"]
    await world.api.put(VMS, vm)


async def test_images_are_imported_before_the_network_is_the_guests(world: World) -> None:
    world.limits = replace(world.limits, import_seconds=0.02)
    given = {"name": "c", "import": {"http": {"url": "http://images.example/a.img?signature=s"}}}
    disk = {"name": "root", "type": "PersistentVolumeClaim", "source": given}
    await a_machine_with(world, disk)
    launcher = await world.launcher("pod-1")
    launcher.importing = (messages.ImportStatus("root", "Downloading", 1 << 20, 4 << 20),)
    async with world.handler() as handler:
        await eventually(lambda: len(launcher.received) > 3)
        assert world.status()["imports"] == [{"disk": "root", "phase": "Downloading", "transferredBytes": 1 << 20, "totalBytes": 4 << 20}]
        assert {each["type"]: (each["status"], each["reason"]) for each in world.status()["conditions"]} == {
            "DisksReady": ("False", "Importing"),
            "Ready": ("False", "DisksNotReady"),
        }
        assert (handler.node.wired, launcher.starts, world.writes()) == (0, 0, 1)
        launcher.importing = (messages.ImportStatus("root", "Retrying", 1 << 20, 4 << 20, 1, "the connection ended"),)
        await eventually(lambda: "ImportFailed" in world.events())
        launcher.importing = (messages.ImportStatus("root", "Succeeded"),)
        await eventually(lambda: phase_is(world, "Running"))

    assert "imports" not in world.status()
    assert (handler.node.given, handler.node.wired, launcher.starts) == (1, 1, 1)
    assert [each for each in world.events() if each.startswith("Import")] == ["ImportStarted", "ImportFailed", "ImportSucceeded"]
    assert not any("signature" in str(each) for each in (world.status(), world.api.all(EVENTS)))


async def test_a_launcher_that_knows_no_imports_is_not_asked_for_one(world: World) -> None:
    disk = {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "c", "import": {"http": {"url": "http://h/"}}}}
    await a_machine_with(world, disk)
    launcher = await world.launcher("pod-1")
    launcher.later_actions = ()
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))

    assert not any(isinstance(each, messages.Import) for each in launcher.received)


async def test_restarted_handler_continues_waiting_silently(world: World) -> None:
    world.limits = replace(world.limits, image_seconds=0.02)
    await world.vm()
    launcher = await world.launcher("pod-1")
    launcher.missing = ("disk0",)
    async with world.handler():
        await eventually(lambda: "DiskImageNotFound" in world.events())
    before = len(launcher.received)
    async with world.handler():
        await eventually(lambda: len(launcher.received) > before + 2)
        launcher.missing = ()
        await eventually(lambda: phase_is(world, "Running"))

    assert world.writes() == 2
    assert world.events().count("DiskImageNotFound") == 1


async def test_a_machine_that_waits_for_an_image_can_be_stopped(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    launcher.missing = ("disk0",)
    async with world.handler():
        await eventually(lambda: "DiskImageNotFound" in world.events())
        await world.api.edit(VMS, "default", "testvm", lambda vm: vm["status"].update(request=a_request("Stop")))
        await eventually(lambda: phase_is(world, "Stopped"))

    assert [each["type"] for each in world.status()["conditions"]] == ["Ready"]
    assert "nodeName" not in world.status()


@pytest.mark.parametrize(("device", "type_"), [("kvm", "kvm"), ("qemu", "qemu")])
async def test_the_device_of_its_pod_decides_what_a_guest_runs_with(world: World, device: messages.Accelerator, type_: str) -> None:
    """Not the verdict at virt-handler's start: a pod without the device would try to use KVM and fail."""
    await world.vm()
    async with world.handler() as handler:
        handler.node.accelerators = {"pod-1": device, "pod-2": "kvm"}
        await world.launcher("pod-1")
        await eventually(lambda: phase_is(world, "Running"))

    assert world.status()["domain"]["type"] == type_


async def test_a_fault_of_the_network_that_heals_at_once_is_no_event(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        handler.node.fault = CommandFailed("nft had no luck")
        await eventually(lambda: handler.node.given > 1)
        handler.node.fault = None
        await eventually(lambda: phase_is(world, "Running") and "Started" in world.events())

    assert launcher.starts == 1
    assert world.events() == ["Started"]


async def test_a_fault_of_the_network_that_lasts_is_told(world: World) -> None:
    world.limits = replace(world.limits, network_heals_seconds=0.2)
    await world.vm()
    await world.launcher("pod-1")
    async with world.handler() as handler:
        handler.node.no_network = CommandFailed("no bridge")
        await eventually(lambda: "NetworkNotReady" in world.events())


async def test_node_that_cannot_filter_starts_no_guest_and_says_why(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        handler.node.no_network = Unsupported(
            "this node cannot keep a guest to its own addresses; its kernel needs CONFIG_NF_TABLES_NETDEV"
        )
        await eventually(lambda: phase_is(world, "Failed"))

    assert launcher.starts == 0
    ready = next(each for each in world.status()["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "NetworkNotSupported")
    assert "its kernel needs CONFIG_NF_TABLES_NETDEV" in ready["message"]


def network(world: World) -> tuple[str, str, str]:
    found = objects.condition(world.status().get("conditions"), "NetworkReady") or {}
    return str(found.get("status")), str(found.get("reason")), str(found.get("message"))


async def test_network_fault_of_a_running_guest_delays_no_status(world: World) -> None:
    world.limits = replace(world.limits, network_heals_seconds=0.2)
    world.limits = replace(world.limits, network_seconds=0.1)
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
    assert launcher.status.domain is not None
    async with world.handler() as again:
        again.node.no_network = CommandFailed("no bridge")
        launcher.change(domain=replace(launcher.status.domain, state="paused", reason="watchdog"))
        await eventually(lambda: paused_reason(world) == "Watchdog")
        assert world.status()["interfaces"][0]["ipAddress"] == "10.244.0.5"
        await eventually(lambda: network(world) == ("False", "NetworkNotReady", "no bridge"))
        await eventually(lambda: "NetworkNotReady" in world.events())
        again.node.no_network = None
        await eventually(lambda: network(world)[0] == "True")


async def test_frequent_launcher_messages_do_not_rerun_network_setup(world: World) -> None:
    world.link_limits = replace(world.link_limits, changes_per_second=1000.0)  # only the retries are limited here
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
    async with world.handler() as again:
        again.node.no_network = CommandFailed("no bridge")
        await eventually(lambda: again.node.tried > 0)
        began, looks = time.monotonic(), 0
        while looks < 60:
            looks += 1
            launcher.change(consoles=looks % 8)
            await asyncio.sleep(0.01)
        assert again.node.tried <= 1 + world.limits.network_tries_burst + 1 + (time.monotonic() - began) / world.limits.network_seconds


async def test_network_fault_before_the_start_is_reported_until_fixed(world: World) -> None:
    world.limits = replace(world.limits, network_heals_seconds=0.2)
    await world.vm()
    await world.launcher("pod-1")
    async with world.handler() as handler:
        handler.node.no_network = CommandFailed("no bridge")
        await eventually(lambda: network(world) == ("False", "NetworkNotReady", "no bridge"))
        assert phase_is(world, "Scheduled")
        handler.node.no_network = None
        await eventually(lambda: phase_is(world, "Running") and network(world)[0] == "True")


async def test_plugin_fault_has_its_own_reason_until_it_succeeds(world: World) -> None:
    world.limits = replace(world.limits, network_heals_seconds=0.2)
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        for fault in (Failed("plugin lan (ADD): no luck"), TimedOut("plugin lan (ADD) hangs"), NotFound("plugin lan is not on this node")):
            handler.node.no_network = fault
            told = ("False", fault.reason, str(fault))
            await eventually(lambda told=told: network(world) == told)  # type: ignore[misc]  # mypy knows no default values of lambdas
        assert phase_is(world, "Scheduled")
        assert launcher.starts == 0
        launcher.starting = asyncio.Event()
        handler.node.no_network = None
        await eventually(lambda: network(world)[0] == "True")
        assert phase_is(world, "Scheduled")
        launcher.starting.set()
        await eventually(lambda: phase_is(world, "Running") and network(world)[0] == "True")
    assert {"PluginFailed", "PluginTimedOut", "PluginNotFound"} <= set(world.events())


async def test_running_guest_with_a_lost_network_continues(world: World) -> None:
    await world.vm()
    await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
    async with world.handler() as again:
        again.node.no_network = Unsupported("this node cannot keep a guest to its own addresses")
        await eventually(lambda: "NetworkNotSupported" in world.events())

    assert phase_is(world, "Running")


async def test_launcher_of_another_version_is_reported_and_runs_on(world: World) -> None:
    world.link_limits = replace(world.link_limits, fault_seconds=0.05)
    await world.vm()
    async with world.handler():
        launcher = await world.launcher("pod-1")
        await eventually(lambda: phase_is(world, "Running"))
    before, asked = world.status(), len(launcher.received)
    launcher.protocol = 2
    async with world.handler():
        await eventually(lambda: ready(world).get("reason") == "LauncherNotUnderstood")
        await asyncio.sleep(0.3)
        assert ready(world)["status"] == "Unknown"
        assert ready(world)["message"] == (
            "virt-launcher cannot be reached: virt-launcher fake uses protocol version 2, and virt-handler 1; its guest keeps "
            "running; restart the machine to fix this"
        )
        rest = {key: value for key, value in world.status().items() if key != "conditions"}
        assert rest == {key: value for key, value in before.items() if key != "conditions"}
        assert world.events().count("LauncherNotUnderstood") == 1
        assert len(launcher.received) == asked
        launcher.protocol = messages.PROTOCOL
        await eventually(lambda: ready(world).get("status") == "True")


async def test_unsupported_launcher_starts_no_guest(world: World) -> None:
    await world.vm()
    async with world.handler():
        launcher = await world.launcher("pod-1", protocol=2)
        await eventually(lambda: ready(world).get("reason") == "LauncherNotUnderstood")
        assert ready(world)["message"].endswith("; virt-handler cannot start its guest")
        assert launcher.starts == 0
        assert phase_is(world, "Scheduled")


def ready(world: World) -> dict[str, Any]:
    return dict(objects.condition(world.status().get("conditions"), "Ready") or {})
