from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from launcher.protocol import messages
from tests import utmp
from tests.host.launcher import agent_guest, sandbox
from tests.host.launcher.guest import Guest
from tests.host.launcher.sandbox import Client, Launcher, Viewer, a_machine

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]
BOOT_SECONDS = 150
MAC = "02:00:00:00:00:09"


@pytest.fixture(scope="session")
def guest_with_agent(test_guest: Guest) -> Guest:
    return agent_guest.build(test_guest)


@pytest.fixture
def pod(program: Path, guest_with_agent: Guest, tmp_path: Path) -> Iterator[Launcher]:
    launchers = [Launcher(program, tmp_path / "pod0", guest_with_agent)]
    with sandbox.killed_afterwards(launchers):
        yield launchers[0]


def a_disk(pod: Launcher) -> dict[str, Any]:
    image = pod.disks / "data/disk.img"
    image.parent.mkdir()
    image.write_bytes(b"")
    subprocess.run(["truncate", "-s", "16M", image], check=True)
    subprocess.run(["/usr/sbin/mke2fs", "-q", "-t", "ext4", "-F", image], check=True)
    subprocess.run(["chown", "-R", "107:107", pod.disks], check=True)
    return {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "c"}}


def agent_of(client: Client, **wanted: Any) -> messages.AgentStatus:
    return client.until(lambda status: all(getattr(status.agent, name) == value for name, value in wanted.items()), 90).agent


def refusal(client: Client) -> str:
    with pytest.raises(AssertionError) as raised:
        client.read("guestinfo")
    return str(raised.value)


def test_guest_facts_and_a_hanging_agent_are_reported(pod: Launcher) -> None:
    disk = a_disk(pod)
    machine = a_machine(memory={"guest": "192Mi"}, devices={**sandbox.NO_GRAPHICS, "disks": [disk]})
    with ExitStack() as stack:
        client: Client = stack.enter_context(pod.client())
        viewer: Viewer = stack.enter_context(pod.console())
        client.ask(messages.Sync(machine))
        viewer.expect("GUEST-READY", seconds=BOOT_SECONDS)
        assert "no guest agent is connected" in refusal(client)
        assert not agent_of(client).connected

        viewer.sh(f"mkdir -p /var/run /data; {utmp.login('alice', 1_767_225_600)}; agent; mount -t ext4 /dev/vda /data")
        told = agent_of(client, connected=True, hostname="web-1", problem="")
        assert (told.os_id, told.os_name, told.os_version) == ("tiny", "Tiny Guest 1", "1")
        assert told.version
        assert told.kernel_release == viewer.sh("uname -r")

        info = json.loads(client.read("guestinfo"))
        assert info["hostname"] == "web-1"
        assert info["agent"]["version"] == told.version
        assert [each["userName"] for each in info["users"]] == ["alice"]
        (mounted,) = [each for each in info["filesystems"] if each["mountPoint"] == "/data"]
        assert (mounted["type"], mounted["totalBytes"] > 0, mounted["disks"][0]["device"]) == ("ext4", True, "/dev/vda")
        assert info["applications"] == [{"name": "busybox", "version": "1.35.0"}, {"name": "qemu-guest-agent", "version": "7.2"}]
        assert "unavailable" not in info, info["unavailable"]
        client.read("guestinfo")
        assert viewer.sh("cat /tmp/listings") == "ran"

        viewer.sh("kill -STOP $(cat /run/qemu-ga.pid)")
        assert "Timeout" in refusal(client)
        client.ask(messages.Suspend())
        assert "the guest is paused" in refusal(client)
        client.ask(messages.Resume())
        assert agent_of(client, connected=True, hostname="web-1").connected
        assert client.until(lambda status: status.agent.problem, 90).agent.problem

        viewer.sh("kill -CONT $(cat /run/qemu-ga.pid)")
        agent_of(client, connected=True, problem="")
        viewer.sh("kill $(cat /run/qemu-ga.pid)")
        agent_of(client, connected=False, hostname="web-1")
        assert "no guest agent is connected" in refusal(client)

        viewer.sh("sed -i s/1.35.0/1.36.0/ /bin/dpkg-query; agent")
        agent_of(client, connected=True, problem="")
        assert {"name": "busybox", "version": "1.36.0"} in json.loads(client.read("guestinfo"))["applications"]
        viewer.sh("kill $(cat /run/qemu-ga.pid)")
        agent_of(client, connected=False)

        viewer.sh("agent -b guest-exec,guest-get-users")
        agent_of(client, connected=True, problem="")
        info = json.loads(client.read("guestinfo"))
        assert "users" not in info
        (reason,) = [each["reason"] for each in info["unavailable"] if each["field"] == "users"]
        assert reason == "the guest agent does not support guest-get-users, or its configuration blocks it"

        client.call(messages.Operate("a", 1, "SoftReboot"))
        viewer.expect("shutdown -h -r +0")  # of the agent; the power button would print POWER-BUTTON
        viewer.expect("GUEST-READY", seconds=BOOT_SECONDS)
        assert client.status.operations == (messages.OperationStatus("a", 1, "succeeded"),)
        with suppress(EOFError):  # the pod may end before it answers
            client.ask(messages.Shutdown(0))
    assert pod.wait() == 0
