from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from launcher.protocol import messages
from tests.host.launcher import agent_guest, guest, sandbox
from tests.host.launcher.sandbox import Launcher, Viewer, a_machine
from tests.mounted import mount

pytestmark = [pytest.mark.host, pytest.mark.timeout(400)]

KEYS = [f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIhypotheticalhypotheticalhypothetical {name}@example" for name in ("one", "two")]


def authorized(viewer: Viewer) -> list[str]:
    return viewer.sh("cat /home/core/.ssh/authorized_keys").splitlines()


def test_agent_sets_keys_and_removes_deleted_ones(program: Path, test_guest: guest.Guest, tmp_path: Path) -> None:
    pod = Launcher(program, tmp_path / "pod", agent_guest.build(test_guest))
    mount(pod.access_credentials / "0", {"keys": "\n".join(KEYS).encode()})
    machine = dataclasses.replace(a_machine(), access_credentials=(messages.AccessCredential("qemuGuestAgent", ("core",)),))
    with sandbox.killed_afterwards([pod]), pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(machine))
        viewer.expect("GUEST-READY", seconds=120)
        viewer.expect("# ")
        viewer.sh("mkdir -p /etc /home")
        viewer.sh("agent")
        failed = client.until(lambda status: status.authorized_keys.state == "failed", seconds=120)
        assert failed.authorized_keys.message.startswith("user core: ")
        viewer.sh("echo 'core:x:1000:1000::/home/core:/bin/sh' > /etc/passwd; echo 'core:x:1000:' > /etc/group; mkdir /home/core")
        client.until(lambda status: status.authorized_keys.state == "synchronized", seconds=120)
        assert authorized(viewer) == KEYS
        viewer.sh("echo ssh-rsa of-a-stranger >> /home/core/.ssh/authorized_keys")

        mount(pod.access_credentials / "0", {"keys": KEYS[1].encode()})
        sandbox.wait_for(lambda: authorized(viewer) == KEYS[1:], 60, "one key alone")

        mount(pod.access_credentials / "0", {})
        sandbox.wait_for(lambda: authorized(viewer) == [], 60, "no key")
    assert "hypothetical" not in pod.log.read_text()
