from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from handler.network import setup
from launcher.protocol import messages
from tests.host.handler import pods
from tests.host.handler.pods import CALLER6, POD6
from tests.host.handler.test_guest_traffic import READY_SECONDS, a_vm, asked, greeting, lease6
from tests.host.launcher import guest, relay, sandbox
from tests.host.launcher.sandbox import Launcher, a_machine, wait_for

pytestmark = [pytest.mark.host, pytest.mark.timeout(500)]

VM = a_vm({"name": "lan"})


@pytest.fixture
def launchers(program: Path, tmp_path: Path) -> Iterator[list[Launcher]]:
    made: list[Launcher] = []
    with sandbox.killed_afterwards(made):
        yield made


async def test_a_guest_that_moved_keeps_its_address_and_its_router(program: Path, tmp_path: Path, launchers: list[Launcher]) -> None:
    image = guest.build(modules=(*guest.MODULES, "virtio_net"), programs=("dhcpcd",))
    with pods.a_pod() as here, pods.a_pod() as there:
        (wired,) = await setup.Networks().prepare(VM, "", here.launcher)
        assert (await setup.Networks().prepare(VM, "", there.launcher)) == (wired,)
        card = messages.Interface(wired.name, wired.mac, wired.tap, wired.model, wired.lease, wired.lease6, wired.ipv4)
        domain = {"graphics": [], "interfaces": VM["spec"]["domain"]["devices"]["interfaces"]}
        machine = dataclasses.replace(a_machine(devices=domain), interfaces=(card,))
        launchers += [Launcher(program, tmp_path / each.name, image, network=each.name) for each in (here, there)]
        source, target = launchers
        with source.client() as at_source, target.client() as at_target, source.console() as viewer, target.console() as afterwards:
            at_source.ask(messages.Sync(machine))
            at_target.ask(messages.PrepareMigrationTarget("m1", machine))
            viewer.expect("GUEST-READY", READY_SECONDS)
            viewer.sh("ip link set lo up; ip link set eth0 up")
            before = lease6(viewer)
            assert "inet6 fd10:0:2::2/128" in before
            viewer.sh("(while :; do echo hello-from-the-guest | nc -l -p 8080; done) 2>/dev/null & true")
            wait_for(lambda: asked(here, POD6, 8080) == "hello-from-the-guest" or None, 60, "an answer of the guest")
            with relay.connected(source, target):
                at_source.ask(messages.Migrate("m1"))
                at_source.until(lambda status: status.ending)
                at_target.ask(messages.ReleaseMigration("m1"))
            wait_for(lambda: asked(there, POD6, 8080) == "hello-from-the-guest" or None, 60, "an answer of the guest")
            with greeting(there, CALLER6) as callers:
                assert afterwards.sh(f"nc {CALLER6} 80") == "hello-from-outside"
            assert callers == [POD6]
            # The guest resolves the neighbour again, and the target's virt-launcher answers.
            afterwards.sh("ip -6 neigh flush dev eth0")
            assert "1 packets received" in afterwards.sh(f"ping -6 -c 1 -W 20 {CALLER6}")
            assert "lladdr 02:00:00:00:00:01" in afterwards.sh("ip -6 neigh show fe80::1 dev eth0")
            assert "default via fe80::1 dev eth0" in afterwards.sh("ip -6 route")
