from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from handler.reconcilers.migrations import migration_causes
from launcher.protocol import messages
from tests.host.launcher import relay
from tests.host.launcher.observer import observing
from tests.host.launcher.sandbox import Launcher, wait_for
from tests.host.launcher.test_migration import MACHINE, SLOW, ended

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]
Cut = Callable[[Launcher, Launcher, tuple[relay.Relay, ...]], None]


def both_connections(source: Launcher, target: Launcher, relays: tuple[relay.Relay, ...]) -> None:
    for item in relays:
        item.cut()


def the_memorys_connection(source: Launcher, target: Launcher, relays: tuple[relay.Relay, ...]) -> None:
    relays[1].cut()


def libvirts_connection(source: Launcher, target: Launcher, relays: tuple[relay.Relay, ...]) -> None:
    relays[0].cut()


def libvirtd_of_the_target(source: Launcher, target: Launcher, relays: tuple[relay.Relay, ...]) -> None:
    os.kill(target.libvirtd(), signal.SIGKILL)


def libvirtd_of_the_source(source: Launcher, target: Launcher, relays: tuple[relay.Relay, ...]) -> None:
    os.kill(source.libvirtd(), signal.SIGKILL)


def qemu_of_the_target(source: Launcher, target: Launcher, relays: tuple[relay.Relay, ...]) -> None:
    os.kill(wait_for(target.qemu, 20, "QEMU of the target")[0], signal.SIGKILL)


CUTS: tuple[tuple[Cut, ...], ...] = (
    (both_connections, libvirtd_of_the_source, qemu_of_the_target),
    (the_memorys_connection, libvirts_connection, libvirtd_of_the_target),
)
"""Each case breaks connections and processes, because ``make test`` runs one case."""


def has_progress(uid: str) -> Callable[[messages.Status], bool]:
    def condition(status: messages.Status) -> bool:
        known = status.migration_of(uid)
        return known is not None and known.memory_processed_bytes > 0

    return condition


@pytest.mark.timeout(300)
@pytest.mark.sample(2, "broken attempts of a migration")
@pytest.mark.parametrize("cuts", CUTS)
def test_a_guest_moves_at_the_next_attempt_whatever_broke(
    cuts: tuple[Cut, ...], start: Callable[[], Launcher], capsys: pytest.CaptureFixture[str]
) -> None:
    source = start()
    said: list[str] = []
    with source.client() as at_source, source.console() as viewer:
        at_source.ask(messages.Sync(MACHINE))
        viewer.expect("tick 2")
        for number, cut in enumerate(cuts):
            uid, target = f"m1-{number}", start()
            with target.client() as at_target:
                at_target.ask(messages.PrepareMigrationTarget(uid, MACHINE))
                with relay.connected(source, target, SLOW) as relays, observing(source, target):
                    at_source.ask(messages.Migrate(uid))
                    at_source.until(has_progress(uid), 60)
                    # libvirt may still report the previous attempt, and a missing connection cannot be cut.
                    wait_for(lambda relays=relays: relays[1].connections, 60, "the memory's connection")  # type: ignore[misc]  # a default binds it
                    began = time.monotonic()
                    cut(source, target, relays)
                    status = at_source.until(ended(uid), 90)
                    known = status.migration_of(uid)
                    assert known is not None
                    said.append(f"{cut.__name__}, {time.monotonic() - began:.1f} s: {known.message}")
                    assert known.state == "failed", said
                    assert migration_causes.may_pass(known, status, ""), said
                    target.process.send_signal(signal.SIGTERM)
                    target.wait(60)
        with capsys.disabled():
            print("", *said, sep="\n")
        last = start()
        with last.client() as at_last, relay.connected(source, last):
            at_last.ask(messages.PrepareMigrationTarget("m1", MACHINE))
            at_source.ask(messages.Migrate("m1"))
            status = at_source.until(ended("m1"), 60)
            known = status.migration_of("m1")
            assert known is not None
            assert known.state == "succeeded", known.message
            with last.console() as there:
                at_last.ask(messages.ReleaseMigration("m1"))
                there.expect("tick ")
                first = int(there.expect("\n"))
                assert first > 2
                there.expect(f"tick {first + 2}")
