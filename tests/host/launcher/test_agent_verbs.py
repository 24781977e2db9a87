from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from launcher.protocol import messages
from tests.host.launcher import sandbox
from tests.host.launcher.sandbox import Client, Launcher, Viewer, a_machine
from tests.host.launcher.test_guest_agent import BOOT_SECONDS, a_disk, guest_with_agent, pod

__all__ = ["guest_with_agent", "pod"]

pytestmark = [pytest.mark.host, pytest.mark.timeout(660)]


def operate(client: Client, number: int, action: messages.OperationAction, **more: Any) -> str:
    client.call(messages.Operate(f"o{number}", number, action, **more))
    found = client.status.operation_of(f"o{number}")
    assert found is not None
    return found.message or found.state


def write(viewer: Viewer, name: str) -> None:
    viewer.sh(f"(touch /data/{name}; touch /tmp/{name}) >/dev/null 2>&1 & true")


def wrote(viewer: Viewer, name: str) -> bool:
    return viewer.sh(f"sleep 1; ls /tmp | grep -cx {name}") == "1"


@pytest.fixture
def attached(pod: Launcher) -> Iterator[tuple[Client, Viewer]]:
    """A guest with its agent and an ext4 disk; it says goodbye before its shutdown."""
    devices = {**sandbox.NO_GRAPHICS, "disks": [a_disk(pod)]}
    machine = dataclasses.replace(
        a_machine(memory={"guest": "192Mi"}, devices=devices), pre_stop=("sh", "-c", "echo GOOD''BYE > /dev/console")
    )
    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(machine))
        viewer.expect("GUEST-READY", seconds=BOOT_SECONDS)
        viewer.sh("mkdir -p /var/run /data; agent")
        client.until(lambda status: status.agent.connected and status.agent.version, 90)
        yield client, viewer


def test_commands_run_in_the_guest_and_before_its_shutdown(pod: Launcher, attached: tuple[Client, Viewer]) -> None:
    client, viewer = attached
    runs_commands(client)
    has_its_clock_set(client, viewer)
    freezes_and_thaws(client, viewer)
    gets_a_password(client, viewer)

    assert operate(client, 5, "Freeze", thaw_seconds=300) == "succeeded"
    write(viewer, "three")
    with suppress(EOFError):  # the pod may end before it answers
        client.ask(messages.Shutdown(20))
    viewer.expect("GOODBYE")
    viewer.expect("shutdown -h -P +0")
    assert pod.wait(60) == 0


def runs_commands(client: Client) -> None:
    client.ask(messages.Execute(("test", "-d", "/proc"), 10))
    for command, told in (
        (("sh", "-c", "echo not today >&2; exit 3"), "sh failed with exit code 3: not today"),
        (("sh", "-c", "kill -9 $$"), "sh was ended by a signal"),
        (("sleep", "8"), "sleep has not ended within 1 s"),
        (("true",), "an earlier command still runs in the guest"),
    ):
        refused = client.call(messages.Execute(command, 1))
        assert isinstance(refused, messages.Refusal)
        assert (refused.reason, refused.message) == ("Failed", told)
    missing = client.call(messages.Execute(("/bin/nothing",), 10))
    while isinstance(missing, messages.Refusal) and "an earlier command" in missing.message:
        time.sleep(0.5)  # the agent runs one command at a time
        missing = client.call(messages.Execute(("/bin/nothing",), 10))
    assert isinstance(missing, messages.Refusal)
    assert "/bin/nothing" in missing.message


def has_its_clock_set(client: Client, viewer: Viewer) -> None:
    client.ask(messages.Suspend())
    time.sleep(8)  # longer than the pause after which the clock is set, and than the tolerance below
    client.ask(messages.Resume())
    sandbox.wait_for(lambda: abs(int(viewer.sh("date +%s")) - time.time()) < 3 or None, 30, "the guest's clock to be set")


def freezes_and_thaws(client: Client, viewer: Viewer) -> None:
    assert operate(client, 1, "Freeze", thaw_seconds=300) == "the guest agent found nothing that it can freeze"
    viewer.sh("mount -t ext4 /dev/vda /data")

    assert operate(client, 2, "Freeze", thaw_seconds=300) == "succeeded"
    assert client.status.frozen
    write(viewer, "one")
    assert not wrote(viewer, "one")
    client.read("guestping")
    with pytest.raises(AssertionError, match="file systems are frozen"):
        client.read("guestinfo")
    assert operate(client, 3, "Thaw") == "succeeded"
    assert wrote(viewer, "one")

    assert operate(client, 4, "Freeze", thaw_seconds=6) == "succeeded"
    write(viewer, "two")
    assert not wrote(viewer, "two")
    client.until(lambda status: not status.frozen)
    assert wrote(viewer, "two")


def gets_a_password(client: Client, viewer: Viewer) -> None:
    client.call(messages.SetPassword("root", "a new one"))
    assert viewer.sh("cat /tmp/chpasswd").endswith("root:a new one")
    refused = client.call(messages.SetPassword("nobody", "a new one"))
    assert isinstance(refused, messages.Refusal)
    assert "a new one" not in refused.message
