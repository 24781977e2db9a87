from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import libvirt
import pytest

from launcher.protocol import messages
from tests.damage import never_again
from tests.host.launcher import relay
from tests.host.launcher.observer import Observer, observing
from tests.host.launcher.sandbox import NO_GRAPHICS, Client, Launcher, Viewer, a_tiny_machine

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]
COUNTING = "counter,fill=48,spin=1000"
"""With memory to move, and processor use for an observer."""
SLOW = 4e6
"""Bytes per second: the memory takes twelve seconds."""
QUICKER = 1e7
"""Bytes per second: a quarter of what ``dirty 500`` writes."""
STEADY = 2e7
"""Bytes per second: the memory takes 2.5 s, so all ``MOMENTS`` but the last fall into the transfer."""
SEED = {"name": "seed", "type": "CloudInitNoCloud", "source": {"userData": "#cloud-config"}}
MACHINE = a_tiny_machine(run=COUNTING, devices={**NO_GRAPHICS, "disks": [SEED]})
WRITING = a_tiny_machine(run="counter,fill=8,spin=1000", memory={"guest": "64Mi"}, devices={**NO_GRAPHICS, "disks": [SEED]})
"""All of its memory is soon written."""
DISKLESS = a_tiny_machine(run=COUNTING, devices=NO_GRAPHICS)
"""After a cut with a paused source, QEMU before 10.0 may leave disks inactive, and exit at the next one."""


@dataclass
class Pair:
    source: Launcher
    target: Launcher
    at_source: Client
    at_target: Client
    viewer: Viewer


@contextmanager
def paired(start: Callable[[], Launcher], machine: messages.Machine) -> Iterator[Pair]:
    source, target = start(), start()
    with ExitStack() as stack:
        at_source, at_target = stack.enter_context(source.client()), stack.enter_context(target.client())
        viewer = stack.enter_context(source.console())
        at_source.ask(messages.Sync(machine))
        prepared = at_target.ask(messages.PrepareMigrationTarget("m1", machine)).migration_of("m1")
        assert prepared is not None
        assert prepared.state == "prepared"
        viewer.expect("tick 2")
        yield Pair(source, target, at_source, at_target, viewer)


@pytest.fixture
def pair(start: Callable[[], Launcher]) -> Iterator[Pair]:
    with paired(start, MACHINE) as made:
        yield made


@pytest.fixture
def writing(start: Callable[[], Launcher]) -> Iterator[Pair]:
    with paired(start, WRITING) as made:
        yield made


def memory_is_whole(viewer: Viewer, mebibytes: int) -> None:
    said = viewer.ask("check")
    with never_again("a lost write"):
        assert re.findall(r"(?:intact|corrupt) \w+", said) == [f"intact {mebibytes * 256}"]


def ended(uid: str) -> Callable[[messages.Status], bool]:
    def condition(status: messages.Status) -> bool:
        migration = status.migration_of(uid)
        return migration is not None and migration.state in ("succeeded", "failed", "cancelled")

    return condition


def state_of(status: messages.Status) -> str:
    migration = status.migration_of("m1")
    return migration.state if migration is not None else ""


def runs(launcher: Launcher) -> bool:
    with launcher.client() as client:
        return client.status.domain is not None and client.status.domain.state == "running"


def is_measured(status: messages.Status) -> bool:
    return (found := status.migration_of("m1")) is not None and found.data_total_bytes > 0


def test_the_guest_goes_on_counting_in_the_target(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    with relay.connected(pair.source, pair.target), pair.target.console() as viewer, observing(pair.source, pair.target) as watch:
        begin = time.monotonic()
        pair.at_source.ask(messages.Migrate("m1"))
        source = pair.at_source.until(ended("m1"))
        took = time.monotonic() - begin
        with never_again("two QEMU"):
            assert pair.source.qemu() == []
        assert state_of(source) == "succeeded"
        source = pair.at_source.until(lambda status: status.ending)
        assert source.ending is not None
        assert (source.ending.kind, source.ending.migration_uid) == ("migrated", "m1")
        target = pair.at_target.until(lambda status: state_of(status) == "arrived")
        assert target.domain is not None
        assert (target.domain.state, target.domain.reason) == ("paused", "user")
        assert not target.started
        released = time.monotonic()
        target = pair.at_target.ask(messages.ReleaseMigration("m1"))
        resumed = time.monotonic() - released
        assert state_of(target) == "succeeded"
        assert target.domain is not None
        assert target.domain.state == "running"
        assert target.started
        # The figures do not delay the release: libvirt is queried in parallel.
        took_libvirt = pair.at_target.until(is_measured).migration_of("m1")
        assert took_libvirt is not None
        assert took_libvirt.data_total_bytes > 64 << 20
        assert took_libvirt.data_processed_bytes > 0
        assert 0 < took_libvirt.downtime_milliseconds < took_libvirt.elapsed_milliseconds
        viewer.expect("tick ")
        first = int(viewer.expect("\n"))
        assert first > 2
        viewer.expect(f"tick {first + 2}")
        with capsys.disabled():
            down = watch.resumed - watch.stopped
            print(f"\n[migration took {took:.2f} s, the release {resumed * 1000:.0f} ms; the guest stood still for {down * 1000:.0f} ms]")
    with pair.source.client() as again:
        assert again.status.ending == source.ending
    pair.source.process.send_signal(signal.SIGTERM)
    assert pair.source.wait(60) == 0
    with never_again("wrong bytes"):
        assert (pair.source.made / "seed.iso").read_bytes() == (pair.target.made / "seed.iso").read_bytes()
    pair.at_target.ask(messages.Sync(MACHINE))
    pair.at_target.ask(messages.ReleaseMigration("m1"))
    with never_again("two QEMU"):
        assert len(pair.target.qemu()) == 1
    pair.target.process.send_signal(signal.SIGTERM)
    assert pair.target.wait() == 0


def test_an_aborted_migration_leaves_the_guest_at_the_source(pair: Pair) -> None:
    with relay.connected(pair.source, pair.target, SLOW):
        pair.at_source.ask(messages.Migrate("m1"))

        def has_progress(status: messages.Status) -> bool:
            migration = status.migration_of("m1")
            return migration is not None and migration.memory_processed_bytes > 0

        status = pair.at_source.until(has_progress)
        seen = status.migration_of("m1")
        assert seen is not None
        assert seen.data_total_bytes >= seen.memory_total_bytes > seen.data_remaining_bytes > 0
        assert seen.dirty_bytes_per_second == 0
        pair.at_source.ask(messages.AbortMigration("m1"))
        migration = pair.at_source.until(ended("m1")).migration_of("m1")
        assert migration is not None
        assert migration.state == "cancelled"
    pair.viewer.expect("tick ")
    at = int(pair.viewer.expect("\n"))
    pair.viewer.expect(f"tick {at + 2}")
    assert runs(pair.source)
    migration = pair.at_target.until(ended("m1")).migration_of("m1")
    assert migration is not None
    assert migration.state == "failed"
    pair.target.process.send_signal(signal.SIGTERM)
    assert pair.target.wait() == 0


def progress(status: messages.Status) -> messages.MigrationStatus:
    return status.migration_of("m1") or messages.MigrationStatus("m1", "outgoing", "running")


def test_parallel_connections_carry_the_memory_at_any_terms(pair: Pair) -> None:
    with relay.connected(pair.source, pair.target) as relays:
        pair.at_source.ask(messages.Migrate("m1", 500 << 20, 1000, 4, auto_converge=True))
        assert state_of(pair.at_source.until(ended("m1"), 60)) == "succeeded"
        assert relays[1].connections >= 5
        with pair.target.console() as viewer:
            assert state_of(pair.at_target.ask(messages.ReleaseMigration("m1"))) == "succeeded"
            viewer.expect("tick ")


def test_a_bandwidth_is_kept(pair: Pair) -> None:
    limit = 2 << 20
    with relay.connected(pair.source, pair.target):
        pair.at_source.ask(messages.Migrate("m1", limit))
        known = progress(pair.at_source.until(lambda status: progress(status).elapsed_milliseconds > 4000))
        assert known.state == "running"
        assert 0 < known.memory_processed_bytes < 2 * limit * known.elapsed_milliseconds / 1000
        pair.at_source.ask(messages.AbortMigration("m1"))
        assert state_of(pair.at_source.until(ended("m1"))) == "cancelled"


def never_arriving(pair: Pair) -> None:
    """Migrate a guest that dirties memory faster than QEMU sends it, until the third iteration."""
    pair.viewer.type("dirty 500\n")
    pair.viewer.expect("tick ")
    pair.at_source.ask(messages.Migrate("m1"))
    pair.at_source.until(lambda status: progress(status).iteration >= 3, 90)


def test_endlessly_writing_guest_arrives_once_paused(writing: Pair) -> None:
    with relay.connected(writing.source, writing.target, QUICKER), observing(writing.source, writing.target):
        never_arriving(writing)
        paused = writing.at_source.ask(messages.PauseForMigration("m1")).domain
        assert paused is None or paused.state == "paused"  # None: it has arrived already
        assert state_of(writing.at_source.until(ended("m1"), 90)) == "succeeded"
        with writing.target.console() as viewer:
            target = writing.at_target.ask(messages.ReleaseMigration("m1"))
            assert target.domain is not None
            assert target.domain.state == "running"
            viewer.expect("tick ")
            memory_is_whole(viewer, 8)
    with never_again("two QEMU"):
        assert writing.source.qemu() == []


def test_guest_paused_to_arrive_continues_where_it_stays(writing: Pair) -> None:
    with relay.connected(writing.source, writing.target, QUICKER) as relays, observing(writing.source, writing.target):
        never_arriving(writing)
        relays[1].rate = 1000.0  # else it could arrive before the cut
        writing.at_source.ask(messages.PauseForMigration("m1"))
        for item in relays:
            item.cut()
        assert state_of(writing.at_source.until(ended("m1"), 60)) == "failed"
        running = writing.at_source.until(lambda status: status.domain is not None and status.domain.state == "running")
        assert running.domain is not None
        writing.viewer.expect("tick ")
        at = int(writing.viewer.expect("\n"))
        writing.viewer.expect(f"tick {at + 2}")


def test_a_broken_relay_leaves_the_guest_at_the_source(pair: Pair) -> None:
    with relay.connected(pair.source, pair.target, SLOW) as relays:
        pair.at_source.ask(messages.Migrate("m1"))
        pair.at_source.until(lambda status: progress(status).memory_processed_bytes > 0)
        for item in relays:
            item.cut()
        migration = pair.at_source.until(ended("m1"), 50).migration_of("m1")
        assert migration is not None
        assert migration.state == "failed"
    pair.viewer.expect("tick ")
    assert runs(pair.source)


def test_target_ending_during_the_migration_keeps_the_source(pair: Pair) -> None:
    with relay.connected(pair.source, pair.target, SLOW):
        pair.at_source.ask(messages.Migrate("m1"))
        pair.at_target.until(lambda status: status.domain is not None)
        pair.target.process.send_signal(signal.SIGTERM)
        assert pair.target.wait() == 0
        migration = pair.at_source.until(ended("m1"), 50).migration_of("m1")
        assert migration is not None
        assert migration.state == "failed"
    assert runs(pair.source)


def test_source_ending_aborts_its_migration_and_shuts_down(pair: Pair) -> None:
    with relay.connected(pair.source, pair.target, SLOW):
        pair.at_source.ask(messages.Migrate("m1"))
        pair.at_source.until(lambda status: progress(status).memory_processed_bytes > 0)
        pair.source.process.send_signal(signal.SIGTERM)
        ending = pair.at_source.until(lambda status: status.ending).ending
        assert ending is not None
        assert ending.kind == "shutdown-requested"
    assert pair.source.wait(60) == 0


def paused(reason: int) -> tuple[int, int]:
    return libvirt.VIR_DOMAIN_PAUSED, reason


def when_it_appears(watch: Observer, relays: tuple[relay.Relay, ...]) -> None:
    watch.wait(lambda _source, target: target[0] == libvirt.VIR_DOMAIN_PAUSED)


def when_the_source_stands_still(watch: Observer, relays: tuple[relay.Relay, ...]) -> None:
    """Wait for this moment, or the next: a starved observer can miss it."""
    arrived = paused(libvirt.VIR_DOMAIN_PAUSED_USER)
    watch.wait(lambda source, target: source == paused(libvirt.VIR_DOMAIN_PAUSED_MIGRATION) or target == arrived)


def when_it_has_arrived(watch: Observer, relays: tuple[relay.Relay, ...]) -> None:
    watch.wait(lambda _source, target: target == paused(libvirt.VIR_DOMAIN_PAUSED_USER))


def when_it_has_arrived_and_nobody_heard(watch: Observer, relays: tuple[relay.Relay, ...]) -> None:
    """Lose the message that the domain is complete: the source's libvirt resumes the guest."""
    when_the_source_stands_still(watch, relays)
    relays[0].muted.set()
    when_it_has_arrived(watch, relays)


def some_time_later(seconds: float) -> Callable[[Observer, tuple[relay.Relay, ...]], None]:
    return lambda _watch, _relays: time.sleep(seconds)


MOMENTS = [
    when_it_appears,
    when_it_has_arrived_and_nobody_heard,
    when_the_source_stands_still,
    when_it_has_arrived,
    *(some_time_later(seconds) for seconds in (0.05, 0.3, 1.2, 2.2)),
]


def test_broken_connection_leaves_exactly_one_guest(start: Callable[[], Launcher], capsys: pytest.CaptureFixture[str]) -> None:
    source = start()
    with ExitStack() as stack:
        at_source = stack.enter_context(source.client())
        at_source.ask(messages.Sync(DISKLESS))
        with source.console() as viewer:
            viewer.expect("tick 1")
        outcomes: list[str] = []
        for number, moment in enumerate(MOMENTS):
            uid, target = f"m{number}", start()
            at_target = stack.enter_context(target.client())
            at_target.ask(messages.PrepareMigrationTarget(uid, DISKLESS))
            with relay.connected(source, target, STEADY) as relays, observing(source, target) as watch:
                at_source.ask(messages.Migrate(uid))
                moment(watch, relays)
                for item in relays:
                    item.cut()
                migration = at_source.until(ended(uid), 60).migration_of(uid)
                assert migration is not None
                outcomes.append(migration.state)
                if migration.state == "succeeded":
                    with never_again("two QEMU"):
                        assert source.qemu() == []
                    at_target.ask(messages.ReleaseMigration(uid))
                    watch.wait(lambda _source, target: target[0] == libvirt.VIR_DOMAIN_RUNNING)
                    assert source.wait(60) == 0
                else:
                    watch.wait(lambda source, _target: source[0] == libvirt.VIR_DOMAIN_RUNNING)
                    target.process.send_signal(signal.SIGTERM)
                    assert target.wait() == 0
                watch.look_again(20)
            with never_again("two QEMU"):
                assert len(source.qemu() + target.qemu()) == 1, moment
            if migration.state == "succeeded":
                source, at_source = target, at_target
        with capsys.disabled():
            print(f"\n[cut at {len(MOMENTS)} moments: {', '.join(outcomes)}]")
        assert outcomes[:2] == ["failed", "failed"]
        with source.console() as viewer:
            viewer.expect("tick ")
            first = int(viewer.expect("\n"))
            viewer.expect(f"tick {first + 2}")
            memory_is_whole(viewer, 48)
