from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.places import layout
from launcher.domain.states import State
from launcher.hypervisor import conversion
from launcher.hypervisor.port import (
    Disks,
    HypervisorError,
    MigrationAborted,
    MigrationFailed,
    OperationTimeout,
    Progress,
    Terms,
    Unavailable,
)
from launcher.main.decisions import life, requests
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.lifecycle import outgoing_migration
from launcher.protocol import messages, reading
from tests.unit.launcher.main.world import (
    MACHINE,
    NAME,
    PREPARE,
    QUICK,
    RELEASE,
    SPECIFICATION,
    SYNC,
    TAP,
    Call,
    World,
    arrived,
    hangs,
    state_of,
)


async def test_sync_starts_the_domain_once(world: World) -> None:
    await world.domain.handle(SYNC)
    assert world.status.started
    assert world.status.domain is not None
    assert world.status.domain.state == "running"
    await world.domain.handle(SYNC)
    assert len(world.hypervisor.created) == 1


async def test_a_disk_gets_the_name_that_it_has_elsewhere(world: World) -> None:
    drive = {**SPECIFICATION, "devices": {"disks": [{"name": "drive", "device": "cdrom"}]}}
    machine = dataclasses.replace(MACHINE, domain=drive, targets={"drive": "sdc"})
    await world.domain.handle(dataclasses.replace(SYNC, machine=machine))
    assert '<target dev="sdc" bus="sata" />' in world.hypervisor.created[0]


async def test_two_syncs_at_once_start_one_domain(world: World) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(world.domain.handle(SYNC))
    assert len(world.hypervisor.created) == 1


async def test_what_qemu_can_do_is_learned_before_a_domain_is_made(world: World) -> None:
    await world.domain.handle(messages.Sync(MACHINE, capabilities="<qemuCaps/>"))
    assert world.hypervisor.learned == ["<qemuCaps/>"]
    assert [each for each in world.hypervisor.calls if each in ("learn", "create")] == ["learn", "create"]


async def test_what_qemu_can_do_is_learned_before_a_domain_arrives(world: World) -> None:
    await world.domain.handle(messages.PrepareMigrationTarget("m1", MACHINE, capabilities="<qemuCaps/>"))
    assert world.hypervisor.learned == ["<qemuCaps/>"]


async def test_a_paused_sync_leaves_the_domain_paused(world: World) -> None:
    await world.domain.handle(messages.Sync(MACHINE, paused=True))
    assert world.status.domain is not None
    assert (world.status.domain.state, world.status.domain.reason) == ("paused", "user")


async def test_after_its_end_a_domain_is_never_started_again(world: World) -> None:
    await world.domain.handle(SYNC)
    world.hypervisor.become(NAME, State.SHUTOFF, "shutdown")
    await world.ends("shutdown")
    await world.domain.handle(SYNC)
    assert len(world.hypervisor.created) == 1
    assert world.status.domain is None


async def test_a_pod_belongs_to_one_virtual_machine(world: World) -> None:
    await world.domain.handle(SYNC)
    with pytest.raises(RequestRefused, match="belongs to"):
        await world.domain.handle(messages.Sync(messages.Machine("default", "testvm", "u-2", SPECIFICATION, "qemu")))


async def test_a_failed_start_ends_the_pod_with_the_reason(world: World, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("qemu: no such machine\n")
    world.hypervisor.fail_next = HypervisorError("start domain: no such machine")
    with pytest.raises(RequestRefused, match="no such machine"):
        await world.domain.handle(SYNC)
    await world.ends("start-failed")
    assert world.status.ending is not None
    assert world.status.ending.log == ("qemu: no such machine",)
    assert not world.status.started


async def test_an_invalid_specification_is_a_failed_start(world: World) -> None:
    with pytest.raises(RequestRefused, match=r"memory\.guest"):
        await world.domain.handle(messages.Sync(messages.Machine("default", "testvm", "u-1", {"memory": {"guest": "much"}}, "qemu")))
    await world.ends("start-failed")


async def test_a_start_of_unknown_outcome_leaves_no_domain(world: World) -> None:
    async def lost(create: Call) -> None:
        await create()
        raise Unavailable("the connection broke")

    world.hypervisor.intercept("create", lost)
    with pytest.raises(RequestRefused):
        await world.domain.handle(SYNC)
    assert world.hypervisor.domains[NAME].state is State.SHUTOFF
    await world.ends("start-failed")


async def test_sigterm_without_a_guest_ends_at_once(world: World) -> None:
    world.domain.terminate()
    await world.ends("destroyed")
    assert world.status.ending is not None
    assert world.status.ending.message == life.NOT_RUN


async def test_sigterm_presses_the_button_repeatedly_then_destroys(world: World) -> None:
    await world.domain.handle(SYNC)
    world.domain.terminate()
    assert world.status.stopping
    await world.ends("destroyed")
    assert world.hypervisor.calls.count("press power button") > 2


async def test_sigterm_and_a_guest_that_obeys(world: World) -> None:
    await world.domain.handle(SYNC)
    world.domain.terminate()
    await world.until(lambda: "press power button" in world.hypervisor.calls)
    world.hypervisor.become(NAME, State.SHUTOFF, "shutdown")
    await world.ends("shutdown-requested")


async def test_the_agent_is_asked_first_where_there_is_one(world: World) -> None:
    await world.domain.handle(SYNC)
    world.hypervisor.become(NAME, State.RUNNING, "booted", agent=True)
    await world.until(lambda: "guest-info" in world.hypervisor.calls)
    await world.domain.handle(messages.Shutdown(10))
    await world.until(lambda: "press power button" in world.hypervisor.calls)
    assert world.hypervisor.calls.index("ask agent") < world.hypervisor.calls.index("press power button")


@pytest.mark.parametrize(
    ("request_", "call"),
    [(SYNC, "ready"), (SYNC, "create"), (messages.PrepareMigrationTarget("m1", MACHINE), "ready")],
    ids=["start, libvirtd", "start, domain", "target, libvirtd"],
)
async def test_sigterm_ends_any_start_in_progress(world: World, call: str, request_: messages.Action) -> None:
    world.hypervisor.intercept(call, hangs)
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(refused(world, request_))
        await asyncio.sleep(0.02)
        world.domain.terminate()
    assert asked.result().reason == "Conflict"
    await world.ends("destroyed")
    assert world.status.ending is not None
    assert world.status.ending.message == life.NOT_RUN


async def test_sigterm_does_not_wait_for_cleanup_by_libvirtd(world: World) -> None:
    """The stop would wait for the start, and the start for libvirtd, for a minute."""

    async def away(_destroy: Call) -> None:
        raise Unavailable("libvirtd is away")

    world.hypervisor.intercept("destroy", away)
    world.hypervisor.fail_next = HypervisorError("no such device")
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(refused(world, SYNC))
        await world.until(lambda: world.hypervisor.fail_next is None)
        await asyncio.sleep(0.02)
        world.domain.terminate()
        await world.ends("destroyed")
    assert asked.result().reason == "Conflict"


async def test_sigterm_between_creation_and_start_leaves_no_domain(world: World) -> None:
    world.hold_console()
    async with asyncio.TaskGroup() as group:
        group.create_task(refused(world, SYNC))
        await world.until(lambda: NAME in world.hypervisor.domains)
        world.domain.terminate()
    await world.ends("destroyed")
    assert world.hypervisor.domains[NAME].state is State.SHUTOFF
    assert not {"resume", "press power button"} & set(world.hypervisor.calls)


@pytest.mark.parametrize("by", ["SIGTERM", "Shutdown"])
async def test_guest_that_never_ran_is_not_started_to_shut_down(world: World, by: str) -> None:
    await world.domain.handle(messages.Sync(dataclasses.replace(MACHINE, grace_seconds=3600.0), paused=True))
    if by == "SIGTERM":
        world.domain.terminate()
    else:
        await world.domain.handle(messages.Shutdown(3600.0))
    await world.ends("destroyed")
    assert not {"resume", "press power button"} & set(world.hypervisor.calls)
    assert world.status.ending is not None
    assert world.status.ending.message == life.NOT_RUN


async def test_guest_paused_after_running_has_its_grace_period(world: World) -> None:
    await world.domain.handle(messages.Sync(MACHINE, paused=True))
    await world.domain.handle(messages.Resume())
    await world.domain.handle(messages.Suspend())
    world.domain.terminate()
    await world.until(lambda: "press power button" in world.hypervisor.calls)
    await world.ends("destroyed")


async def refused(world: World, request: messages.Action) -> RequestRefused:
    with pytest.raises(RequestRefused) as found:
        await world.domain.handle(request)
    return found.value


async def test_a_shorter_grace_period_counts_and_a_longer_one_does_not(world: World) -> None:
    await world.domain.handle(SYNC)
    await world.domain.handle(messages.Shutdown(0.2))
    await world.domain.handle(messages.Shutdown(3600))
    await world.ends("destroyed")


async def test_shortened_grace_period_bounds_a_hanging_call(world: World) -> None:
    async def hang(_press: Call) -> None:
        asked.set()
        await asyncio.Event().wait()

    asked = asyncio.Event()
    world.hypervisor.intercept("press_power_button", hang)
    await world.domain.handle(SYNC)
    await world.domain.handle(messages.Shutdown(3600))
    await asked.wait()
    await world.domain.handle(messages.Shutdown(0.1))
    await world.ends("destroyed")


@pytest.mark.parametrize(
    "request_",
    [messages.Suspend(), messages.Resume(), messages.Shutdown(1), messages.Migrate("m")],
    ids=lambda r: type(r).__name__,
)
async def test_without_a_guest_there_is_nothing_to_do_it_to(world: World, request_: messages.Action) -> None:
    with pytest.raises(RequestRefused) as refused:
        await world.domain.handle(request_)
    assert refused.value.reason == "Conflict"


async def test_libvirtd_away_leaves_the_last_status_and_ends_nothing(world: World) -> None:
    await world.domain.handle(SYNC)
    world.hypervisor.connect(connected=False)
    await asyncio.sleep(0.05)
    assert world.status.domain is not None
    assert world.status.ending is None
    with pytest.raises(RequestRefused) as refused:
        await world.domain.handle(messages.Suspend())
    assert refused.value.reason == "Timeout"
    world.hypervisor.domains[NAME] = world.hypervisor.domains[NAME].__class__(NAME, "u", "qemu", State.SHUTOFF, "crashed")
    world.hypervisor.connect(connected=True)
    await world.ends("crashed")


async def test_lack_of_memory_is_named_as_the_cause_of_a_crash(world: World) -> None:
    await world.domain.handle(SYNC)
    world.lacked_memory = True
    world.hypervisor.become(NAME, State.SHUTOFF, "crashed")
    await world.ends("crashed")
    assert world.status.ending is not None
    assert world.status.ending.message == f"QEMU ended unexpectedly; {life.LACKED_MEMORY}"


async def test_agent_answers_are_in_the_status(world: World) -> None:
    card = {"name": "eth0", "hardware-address": TAP.mac, "ip-addresses": [{"ip-address": "10.0.2.2"}]}
    world.hypervisor.answers = {"guest-info": {}, "guest-get-host-name": {"host-name": "guest"}, "guest-network-get-interfaces": [card]}
    await world.domain.handle(SYNC)
    world.hypervisor.become(NAME, State.RUNNING, "booted", agent=True)
    await world.until(lambda: world.status.agent.hostname == "guest")
    assert world.status.interfaces == (messages.InterfaceStatus("default", TAP.mac, "eth0", ("10.0.2.2",)),)
    world.hypervisor.become(NAME, State.RUNNING, "booted")
    await world.until(lambda: not world.status.agent.connected)


async def migrating(world: World) -> None:
    await world.domain.handle(SYNC)
    await world.domain.handle(messages.Migrate("m1"))
    await world.until(lambda: world.hypervisor.migrating)


async def test_a_domain_that_migrated_away_ends_the_pod(world: World) -> None:
    await migrating(world)
    world.hypervisor.end_migration(NAME)
    await world.ends("migrated")
    assert state_of(world) == "succeeded"
    assert world.status.ending is not None
    assert world.status.ending.migration_uid == "m1"
    assert (
        "migrate to qemu+unix:///session?socket=/run/kubevirt/migration/libvirt.sock and unix:///run/kubevirt/migration/data.sock"
        in world.hypervisor.calls
    )


async def test_failed_migration_keeps_the_domain_and_uses_up_its_uid(world: World) -> None:
    await migrating(world)
    world.hypervisor.end_migration(NAME, MigrationFailed("the relay broke"))
    await world.until(lambda: state_of(world) == "failed")
    await world.domain.handle(messages.Migrate("m1"))
    assert not world.hypervisor.migrating
    assert world.status.ending is None
    await world.domain.handle(messages.Migrate("m2"))
    await world.until(lambda: world.hypervisor.migrating)
    world.hypervisor.end_migration(NAME)
    await world.ends("migrated")


GROWS: dict[str, Any] = {"memory": {"guest": "1Gi", "maxGuest": "2Gi"}}


@pytest.mark.parametrize("fails", [True, False])
async def test_guest_that_stands_still_to_move_goes_on_if_it_stays(world: World, fails: bool) -> None:
    grows = dataclasses.replace(SYNC.machine, domain={**SYNC.machine.domain, **GROWS}, accelerator="qemu")
    await world.domain.handle(dataclasses.replace(SYNC, machine=grows))
    await world.domain.handle(messages.Migrate("m1"))
    await world.until(lambda: world.hypervisor.migrating)
    calls = world.hypervisor.calls
    assert [each.split()[0] for each in calls if each.startswith(("suspend", "migrate"))] == ["suspend", "migrate"]
    world.hypervisor.end_migration(NAME, MigrationFailed("the relay broke") if fails else None)
    await world.until(lambda: state_of(world) == ("failed" if fails else "succeeded"))
    assert ("resume" in calls[calls.index("suspend") :]) == fails


async def test_an_aborted_migration_is_cancelled(world: World) -> None:
    await migrating(world)
    await world.domain.handle(messages.AbortMigration("m1"))
    await world.until(lambda: state_of(world) == "cancelled")
    await world.domain.handle(messages.AbortMigration("m1"))
    assert world.status.ending is None


async def test_failed_abort_is_not_reported_as_lack_of_memory(world: World) -> None:
    await migrating(world)
    world.hypervisor.fail_next = HypervisorError("abort: timed out")
    world.memory = 0
    await world.until(lambda: world.hypervisor.fail_next is None)
    world.memory = None
    assert world.hypervisor.migrating
    world.hypervisor.end_migration(NAME, MigrationFailed("the relay broke"))
    await world.until(lambda: state_of(world) == "failed")
    migration = world.status.migration_of("m1")
    assert migration is not None
    assert migration.message == "the relay broke"


async def test_migration_is_aborted_before_the_pods_memory_ends(world: World) -> None:
    world.memory = outgoing_migration.MEMORY_KEPT
    await migrating(world)
    await asyncio.sleep(0.1)
    assert world.hypervisor.migrating
    world.memory -= 1
    await world.until(lambda: state_of(world) == "failed")
    migration = world.status.migration_of("m1")
    assert migration is not None
    assert migration.message == outgoing_migration.MEMORY_ENDS
    assert world.hypervisor.domains[NAME].state is State.RUNNING
    assert world.status.ending is None
    world.memory = None
    await world.domain.handle(messages.Migrate("m2"))
    await world.until(lambda: world.hypervisor.migrating)
    world.hypervisor.end_migration(NAME)
    await world.ends("migrated")


async def test_libvirt_is_asked_again_to_break_it_off(world: World) -> None:
    tried = 0

    async def failing_once(call: Call) -> object:
        nonlocal tried
        tried += 1
        if tried == 1:
            raise Unavailable("libvirtd is away")
        return await call()

    world.hypervisor.intercept("abort_job", failing_once)
    await migrating(world)
    world.memory = 0
    await world.until(lambda: state_of(world) == "failed")
    assert tried == 2


async def test_a_guest_that_left_all_the_same_has_left(world: World) -> None:
    async def too_late(_call: object) -> None:
        world.hypervisor.end_migration(NAME)

    world.hypervisor.intercept("abort_job", too_late)
    await migrating(world)
    world.memory = 0
    await world.ends("migrated")
    assert state_of(world) == "succeeded"


async def test_cancelled_migration_is_reported_as_cancelled(world: World) -> None:
    async def nothing(_call: object) -> None:
        pass

    world.hypervisor.intercept("abort_job", nothing)
    await migrating(world)
    world.memory = 0
    await asyncio.sleep(0.05)
    await world.domain.handle(messages.AbortMigration("m1"))
    world.hypervisor.end_migration(NAME, MigrationAborted("aborted"))
    await world.until(lambda: state_of(world) == "cancelled")


async def test_a_migration_has_the_terms_that_it_was_asked_for(world: World) -> None:
    await world.domain.handle(SYNC)
    await world.domain.handle(messages.Migrate("m1", 5 << 20, 700, 2, auto_converge=True))
    await world.until(lambda: world.hypervisor.migrating)
    assert world.hypervisor.terms == [Terms(5 << 20, 700, 2, auto_converge=True)]
    world.hypervisor.end_migration(NAME)
    await world.ends("migrated")


@pytest.mark.parametrize(("request_", "size"), [(messages.Sync, 3 << 20), (partial(messages.PrepareMigrationTarget, "m1"), 100)])
async def test_start_grows_a_disk_and_an_arrival_does_not(
    world: World, tmp_path: Path, pod_directories: Callable[..., None], request_: Callable[..., messages.Action], size: int
) -> None:
    pod_directories(DISKS=tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/disk.img").write_bytes(b"x" * 100)
    claim = {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "c", "create": {"size": "3Mi"}}}
    await world.domain.handle(request_(dataclasses.replace(MACHINE, domain={**SPECIFICATION, "devices": {"disks": [claim]}})))
    assert (tmp_path / "data/disk.img").stat().st_size == size


async def test_disks_that_the_pod_alone_has_leave_with_the_guest(world: World, overlays: Path) -> None:
    (overlays / "scratch.qcow2").touch()
    blank = {"name": "scratch", "type": "EmptyDisk", "source": {"size": "1Mi"}}
    await world.domain.handle(messages.Sync(dataclasses.replace(MACHINE, domain={**SPECIFICATION, "devices": {"disks": [blank]}})))
    await world.domain.handle(messages.Migrate("m1", relays_disks=True))
    await world.until(lambda: world.hypervisor.migrating)
    moved = ((f"{layout.DISKS_DIRECTORY}/scratch.overlay/overlay.qcow2", f"{overlays}/scratch.qcow2"),)
    uri = "unix:///run/kubevirt/migration/disks.sock"
    assert world.hypervisor.disks == [Disks(("vda",), shallow=True, uri=uri, moved=moved)]
    world.hypervisor.end_migration(NAME)
    await world.ends("migrated")


@pytest.mark.parametrize(
    ("request_", "terms"),
    [
        (messages.Migrate("m", -1, -1, -1), Terms()),
        (messages.Migrate("m", reading.MAX_INTEGER, reading.MAX_INTEGER, reading.MAX_INTEGER), Terms(reading.MAX_INTEGER, 2_000_000, 255)),
    ],
)
def test_migration_terms_stay_within_qemus_limits(request_: messages.Migrate, terms: Terms) -> None:
    assert outgoing_migration.terms_of(request_) == terms
    parameters, _ = conversion.migration_parameters(terms)
    assert parameters.get("bandwidth", 0) <= reading.MAX_INTEGER >> 20


async def test_a_guest_is_paused_to_arrive_and_runs_again_if_it_stays(world: World) -> None:
    await migrating(world)
    await world.domain.handle(messages.PauseForMigration("m1"))
    await world.domain.handle(messages.PauseForMigration("m1"))
    assert world.hypervisor.calls.count("suspend") == 1
    assert world.status.domain is not None
    assert world.status.domain.state == "paused"
    world.hypervisor.end_migration(NAME, MigrationFailed("the relay broke"))
    await world.until(lambda: state_of(world) == "failed")
    await world.until(lambda: world.status.domain is not None and world.status.domain.state == "running")
    await world.domain.handle(messages.PauseForMigration("m1"))
    assert world.hypervisor.domains[NAME].state is State.RUNNING


async def test_a_guest_that_stays_is_resumed_until_libvirt_can(world: World) -> None:
    await migrating(world)
    await world.domain.handle(messages.PauseForMigration("m1"))
    tried = 0

    async def failing(resume: Call) -> None:
        nonlocal tried
        tried += 1
        if tried < 3:
            raise OperationTimeout("resume: no answer")
        await resume()

    world.hypervisor.intercept("resume", failing)
    await world.domain.handle(messages.AbortMigration("m1"))
    await world.until(lambda: state_of(world) == "cancelled")
    assert world.hypervisor.domains[NAME].state is State.RUNNING
    assert tried == 3


async def test_guest_paused_by_a_user_stays_paused_after_a_failure(world: World) -> None:
    await world.domain.handle(SYNC)
    await world.domain.handle(messages.Suspend())
    await world.domain.handle(messages.Migrate("m1"))
    await world.until(lambda: world.hypervisor.migrating)
    await world.domain.handle(messages.PauseForMigration("m1"))
    world.hypervisor.end_migration(NAME, MigrationFailed("the relay broke"))
    await world.until(lambda: state_of(world) == "failed")
    assert (world.hypervisor.domains[NAME].state, world.hypervisor.domains[NAME].reason) == (State.PAUSED, "user")


async def test_guest_paused_to_arrive_does_not_run_here_again(world: World) -> None:
    await migrating(world)
    await world.domain.handle(messages.PauseForMigration("m1"))
    resumed = world.hypervisor.calls.count("resume")
    world.hypervisor.end_migration(NAME)
    await world.ends("migrated")
    assert world.hypervisor.calls.count("resume") == resumed


async def test_only_a_guest_that_leaves_is_paused_for_it(world: World) -> None:
    await world.domain.handle(SYNC)
    with pytest.raises(RequestRefused, match="this migration does not leave this pod"):
        await world.domain.handle(messages.PauseForMigration("m1"))
    assert "suspend" not in world.hypervisor.calls


async def test_a_target_is_not_paused_by_its_source(world: World) -> None:
    await arrived(world)
    with pytest.raises(RequestRefused, match="this migration does not leave this pod"):
        await world.domain.handle(messages.PauseForMigration("m1"))


async def test_two_migrations_at_once_are_refused(world: World) -> None:
    await migrating(world)
    with pytest.raises(RequestRefused):
        await world.domain.handle(messages.Migrate("m2"))
    world.hypervisor.end_migration(NAME)


@pytest.mark.parametrize("by", ["request", "signal"])
async def test_a_guest_that_is_shut_down_is_not_migrated(world: World, by: str) -> None:
    """It would arrive at a target that expects it to run, or end in mid-migration."""
    await world.domain.handle(SYNC)
    if by == "request":
        await world.domain.handle(messages.Shutdown(30.0))
    else:
        world.domain.terminate()
    await world.until(lambda: "press power button" in world.hypervisor.calls)
    with pytest.raises(RequestRefused, match="being shut down") as caught:
        await world.domain.handle(messages.Migrate("m1"))
    assert caught.value.reason == "Conflict"
    assert not world.hypervisor.migrating
    assert world.status.migration_of("m1") is None
    world.hypervisor.become(NAME, State.SHUTOFF, "shutdown")
    await world.until(lambda: world.over)


async def test_a_guest_that_powers_off_while_it_migrates_has_shut_down(world: World) -> None:
    await migrating(world)
    world.hypervisor.become(NAME, State.SHUTOFF, "shutdown")
    await asyncio.sleep(0.02)
    world.hypervisor.end_migration(NAME, MigrationFailed("domain is not running"))
    await world.ends("shutdown")


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "still here"])
async def test_migration_outcome_is_read_after_libvirtd_restarts(world: World, *, gone: bool) -> None:
    await migrating(world)
    world.hypervisor.connect(connected=False)
    world.hypervisor.end_migration(NAME, Unavailable("the connection broke"))
    await asyncio.sleep(0.03)
    assert state_of(world) == "running"
    assert world.status.ending is None
    if gone:
        world.hypervisor.become(NAME, State.SHUTOFF, "migrated")
    world.hypervisor.connect(connected=True)
    await world.until(lambda: state_of(world) == ("succeeded" if gone else "failed"))
    await asyncio.sleep(0.03)
    assert world.over is gone


async def test_progress_is_in_the_status(world: World) -> None:
    await migrating(world)

    def total() -> int:
        migration = world.status.migration_of("m1")
        return migration.memory_total_bytes if migration is not None else 0

    await world.until(lambda: total() == 2)
    world.hypervisor.end_migration(NAME)


async def test_sigterm_during_a_migration_aborts_it_first(world: World) -> None:
    await migrating(world)
    world.domain.terminate()
    await world.until(lambda: state_of(world) == "cancelled")
    await world.until(lambda: "press power button" in world.hypervisor.calls)
    await world.ends("destroyed")


async def test_sigterm_during_confirmation_presses_no_button(world: World) -> None:
    """The domain is complete on the target and paused here; the last observation may still say that it runs."""
    await migrating(world)
    world.hypervisor.domains[NAME] = dataclasses.replace(world.hypervisor.domains[NAME], state=State.PAUSED, reason="migrating")

    async def too_late(_abort: Call) -> None:
        world.hypervisor.calls.append("abort, too late")

    world.hypervisor.intercept("abort_job", too_late)
    world.domain.terminate()
    await asyncio.sleep(0.1)
    world.hypervisor.end_migration(NAME)
    await world.ends("migrated")
    after = world.hypervisor.calls[world.hypervisor.calls.index("resume") + 1 :]
    assert not {"press power button", "ask agent", "destroy", "resume"} & set(after)


async def test_sigterm_acts_on_what_is_so_now(world: World) -> None:
    await world.domain.handle(SYNC)
    domain = world.hypervisor.domains[NAME]
    world.hypervisor.domains[NAME] = dataclasses.replace(domain, state=State.SHUTOFF, reason="shutdown")
    world.domain.terminate()
    await world.ends("shutdown-requested")
    assert "press power button" not in world.hypervisor.calls


async def test_a_guest_that_is_leaving_is_neither_paused_nor_resumed(world: World) -> None:
    await migrating(world)
    for request in (messages.Suspend(), messages.Resume()):
        with pytest.raises(RequestRefused, match="being migrated"):
            await world.domain.handle(request)
    world.hypervisor.end_migration(NAME)


@pytest.mark.parametrize("error", [Unavailable("the connection broke"), MigrationFailed("no answer")], ids=["unavailable", "failed"])
async def test_domain_left_paused_without_outcome_resumes_here(world: World, error: MigrationFailed | Unavailable) -> None:
    await migrating(world)
    world.hypervisor.become(NAME, State.PAUSED, "migrating")
    world.hypervisor.end_migration(NAME, error)
    await world.until(lambda: state_of(world) == "failed")
    assert world.hypervisor.domains[NAME].state is State.RUNNING


async def test_a_migration_that_goes_on_without_us_is_waited_for(world: World) -> None:
    """libvirtd continues it after the connection broke."""
    await migrating(world)

    async def progress(_progress: Call) -> Progress | None:
        return Progress(1, 2) if world.hypervisor.domains[NAME].state is State.RUNNING else None

    world.hypervisor.intercept("progress", progress)
    world.hypervisor.end_migration(NAME, Unavailable("the connection broke"))
    await asyncio.sleep(0.05)
    assert state_of(world) == "running"
    world.hypervisor.become(NAME, State.SHUTOFF, "migrated")
    await world.ends("migrated")
    assert state_of(world) == "succeeded"


async def test_success_is_said_only_when_qemu_is_gone(world: World) -> None:
    await world.domain.handle(SYNC)

    async def leave_it(_migrate: Call) -> None:
        world.hypervisor.become(NAME, State.PAUSED, "migrating")

    world.hypervisor.intercept("migrate", leave_it)
    await world.domain.handle(messages.Migrate("m1"))
    await world.ends("migrated")
    assert world.hypervisor.domains[NAME].state is State.SHUTOFF


async def test_a_domain_that_arrives_is_the_pods(world: World) -> None:
    await world.domain.handle(PREPARE)
    assert state_of(world) == "prepared"
    world.hypervisor.become(NAME, State.PAUSED, "starting up")
    await world.until(lambda: state_of(world) == "running")
    assert not world.status.started
    world.hypervisor.become(NAME, State.PAUSED, "user")
    await world.until(lambda: state_of(world) == "arrived")
    assert not world.status.started
    await world.domain.handle(RELEASE)
    assert world.hypervisor.domains[NAME].state is State.RUNNING
    assert state_of(world) == "succeeded"
    await world.until(lambda: world.status.started)
    await world.domain.handle(RELEASE)
    assert world.hypervisor.calls.count("resume") == 1
    await world.domain.handle(SYNC)
    assert world.hypervisor.created == []
    world.hypervisor.become(NAME, State.SHUTOFF, "shutdown")
    await world.ends("shutdown")


async def test_migration_figures_are_known_before_the_release(world: World) -> None:
    world.hypervisor.took = Progress(1_200, 2, downtime_milliseconds=45, data_total_bytes=3)
    await arrived(world)

    def down() -> int:
        known = world.status.migration_of("m1")
        return known.downtime_milliseconds if known is not None else 0

    await world.until(lambda: down() == 45)
    assert state_of(world) == "arrived"
    asked = world.hypervisor.calls.count("progress")
    await world.domain.handle(RELEASE)
    assert world.hypervisor.calls.count("progress") == asked
    known = world.status.migration_of("m1")
    assert known is not None
    assert (known.state, known.elapsed_milliseconds, known.data_total_bytes) == ("succeeded", 1_200, 3)


async def test_migration_figures_are_read_again_after_the_release(world: World) -> None:
    await arrived(world)
    await world.domain.handle(RELEASE)
    world.hypervisor.took = Progress(1_200, 2, downtime_milliseconds=45)
    world.hypervisor.become(NAME, State.PAUSED, "user")

    def took() -> tuple[str, int]:
        known = world.status.migration_of("m1")
        return (known.state, known.downtime_milliseconds) if known is not None else ("", 0)

    await world.until(lambda: took() == ("succeeded", 45))


async def test_missing_migration_figures_delay_no_guest(world: World) -> None:
    async def silent(_progress: Call) -> None:
        raise Unavailable("ask for the migration of the domain: not connected")

    world.hypervisor.intercept("progress", silent)
    await arrived(world)
    await world.domain.handle(RELEASE)
    assert state_of(world) == "succeeded"
    assert world.hypervisor.domains[NAME].state is State.RUNNING


async def test_nothing_but_a_release_resumes_a_domain_that_arrived(world: World) -> None:
    await arrived(world)
    for request in (SYNC, messages.Resume(), messages.Suspend(), messages.Shutdown(1), messages.AbortMigration("m1")):
        with contextlib.suppress(RequestRefused):
            await world.domain.handle(request)
    with pytest.raises(RequestRefused):
        await world.domain.handle(messages.ReleaseMigration("m2"))
    assert state_of(world) == "arrived"
    assert world.hypervisor.domains[NAME].state is State.PAUSED


async def test_domain_missing_at_its_release_ends_the_pod(world: World) -> None:
    """It left the source: no other component would report the guest's end."""
    await arrived(world)
    world.hypervisor.vanish(NAME)
    await world.until(lambda: state_of(world) == "failed")
    assert not world.over
    with pytest.raises(RequestRefused):
        await world.domain.handle(RELEASE)
    await world.ends("crashed")
    assert world.status.ending is not None
    assert world.status.ending.message == requests.LOST


async def test_a_guest_that_its_user_paused_is_released_paused(world: World) -> None:
    await arrived(world)
    await world.domain.handle(messages.ReleaseMigration("m1", paused=True))
    assert state_of(world) == "succeeded"
    assert world.hypervisor.domains[NAME].state is State.PAUSED
    await world.domain.handle(messages.Resume())
    assert world.hypervisor.domains[NAME].state is State.RUNNING


async def test_repeated_release_does_not_resume_a_paused_guest(world: World) -> None:
    await arrived(world)
    await world.domain.handle(RELEASE)
    await world.domain.handle(messages.Suspend())
    await world.domain.handle(RELEASE)
    assert world.hypervisor.domains[NAME].state is State.PAUSED


async def test_release_is_refused_only_before_the_real_arrival(world: World) -> None:
    await world.domain.handle(PREPARE)
    world.hypervisor.become(NAME, State.PAUSED, "migrating")
    with pytest.raises(RequestRefused) as refused:
        await world.domain.handle(RELEASE)
    assert refused.value.reason == "Conflict"
    domain = world.hypervisor.domains[NAME]
    world.hypervisor.domains[NAME] = dataclasses.replace(domain, reason="user")
    await world.domain.handle(RELEASE)
    assert state_of(world) == "succeeded"


async def test_failed_release_can_be_repeated(world: World) -> None:
    await arrived(world)
    tried = 0

    async def failing(resume: Call) -> None:
        nonlocal tried
        tried += 1
        if tried == 1:
            raise HypervisorError("resume domain: failed to get the write lock")
        await resume()

    world.hypervisor.intercept("resume", failing)
    with pytest.raises(RequestRefused, match="write lock"):
        await world.domain.handle(RELEASE)
    assert state_of(world) == "arrived"
    await world.domain.handle(RELEASE)
    assert state_of(world) == "succeeded"


async def test_release_with_a_lost_answer_succeeds_if_the_guest_runs(world: World) -> None:
    """libvirtd ends after it resumed the domain: the running guest must not count as one to discard."""
    await arrived(world)

    async def lost(resume: Call) -> None:
        await resume()
        raise Unavailable("resume domain: the connection broke")

    world.hypervisor.intercept("resume", lost)
    with pytest.raises(RequestRefused, match="the connection broke"):
        await world.domain.handle(RELEASE)
    await world.until(lambda: state_of(world) == "succeeded")


@pytest.mark.parametrize("times", [dataclasses.replace(QUICK, release=20.0)])
async def test_a_target_that_must_end_waits_a_moment_for_the_release(world: World) -> None:
    await arrived(world)
    world.domain.terminate()
    await asyncio.sleep(0.05)
    assert world.hypervisor.domains[NAME].state is State.PAUSED
    await world.domain.handle(RELEASE)
    await world.until(lambda: "press power button" in world.hypervisor.calls)
    await world.ends("destroyed")


@pytest.mark.parametrize("times", [dataclasses.replace(QUICK, release=0.05)])
async def test_ending_target_destroys_an_unreleased_copy(world: World) -> None:
    await arrived(world)
    world.domain.terminate()
    await world.until(lambda: world.over)
    assert world.hypervisor.domains[NAME].state is State.SHUTOFF
    assert "press power button" not in world.hypervisor.calls


async def test_missing_arrival_is_no_ending_and_starts_no_other_guest(world: World) -> None:
    await world.domain.handle(PREPARE)
    world.hypervisor.become(NAME, State.PAUSED, "starting up")
    await world.until(lambda: state_of(world) == "running")
    world.hypervisor.vanish(NAME)
    await world.until(lambda: state_of(world) == "failed")
    with pytest.raises(RequestRefused, match="target of a migration"):
        await world.domain.handle(SYNC)
    assert world.hypervisor.created == []
    assert world.status.ending is None
    world.domain.terminate()
    await world.until(lambda: world.over)


async def test_a_target_that_must_end_destroys_what_has_not_arrived(world: World) -> None:
    await world.domain.handle(PREPARE)
    world.hypervisor.become(NAME, State.PAUSED, "starting up")
    await world.until(lambda: state_of(world) == "running")
    world.domain.terminate()
    await world.until(lambda: world.over)
    assert "destroy" in world.hypervisor.calls
    assert "press power button" not in world.hypervisor.calls


async def test_a_target_waits_no_longer_once_aborted(world: World) -> None:
    await world.domain.handle(PREPARE)
    await world.domain.handle(messages.AbortMigration("m1"))
    assert state_of(world) == "cancelled"


async def test_a_pod_with_a_guest_is_no_target(world: World) -> None:
    await world.domain.handle(SYNC)
    with pytest.raises(RequestRefused):
        await world.domain.handle(PREPARE)


async def test_addresses_are_served_before_there_is_a_guest_to_ask(world: World) -> None:
    created: list[int] = []

    async def creating(create: Call) -> None:
        created.append(len(world.served))
        await create()

    world.hypervisor.intercept("create", creating)
    await world.domain.handle(SYNC)
    assert created == [1]
    assert world.served == [MACHINE]


async def test_addresses_are_served_in_the_target_of_a_migration(world: World) -> None:
    await world.domain.handle(messages.PrepareMigrationTarget("m-1", MACHINE))
    assert world.served == [MACHINE]


async def test_without_addresses_no_guest_is_started(world: World) -> None:
    world.serving_fails = OSError(98, "serve DHCP on k6t-eth0: Address already in use")
    with pytest.raises(RequestRefused, match="serve DHCP on k6t-eth0: Address already in use"):
        await world.domain.handle(SYNC)
    assert world.hypervisor.created == []
    await world.ends("start-failed")


async def test_unknown_pod_memory_aborts_nothing(world: World) -> None:
    await migrating(world)
    looks = world.hypervisor.calls.count("progress") + 10
    await world.until(lambda: world.hypervisor.calls.count("progress") > looks)
    assert world.hypervisor.migrating
    assert "abort" not in world.hypervisor.calls


async def test_abort_reason_is_known_before_libvirt_answers(world: World) -> None:
    async def without_answer(call: Call) -> None:
        await call()
        await asyncio.Event().wait()

    world.hypervisor.intercept("abort_job", without_answer)
    await migrating(world)
    world.memory = 0
    await world.until(lambda: state_of(world) in ("failed", "cancelled"))
    migration = world.status.migration_of("m1")
    assert migration is not None
    assert (migration.state, migration.message) == ("failed", outgoing_migration.MEMORY_ENDS)
