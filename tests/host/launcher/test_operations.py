from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable

import pytest

from launcher.hypervisor.occurrences import TOGETHER_SECONDS
from launcher.protocol import messages
from tests.given_time import Deadline
from tests.host.launcher.sandbox import READY, Launcher, Viewer, a_tiny_machine

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]
Start = Callable[[], Launcher]
SYNC = messages.Sync(a_tiny_machine())


def boot_of(viewer: Viewer) -> tuple[str, int]:
    found = re.search(r"uptime=\d+ boot=(\w+) commands=(\d+)", viewer.ask("uptime"))
    assert found is not None
    return found[1], int(found[2])


def over(operation_id: str) -> Callable[[messages.Status], bool]:
    def is_over(status: messages.Status) -> bool:
        found = status.operation_of(operation_id)
        return found is not None and found.state != "running"

    return is_over


def test_a_guest_is_reset_once_for_each_id_and_counts_from_zero(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect(READY)
        viewer.ask("echo one")
        first, commands = boot_of(viewer)
        for _ in range(3):
            client.ask(messages.Operate("a", 1, "Reset"))
        viewer.expect(READY)
        second, again = boot_of(viewer)
        assert second != first
        assert again < commands
        client.ask(messages.Operate("a", 1, "Reset"))
        time.sleep(1)  # nothing happens without an event; a reset reaches the prompt in a tenth of this
        assert boot_of(viewer)[0] == second
        client.ask(messages.Operate("b", 2, "Reset"))
        viewer.expect(READY)
        assert boot_of(viewer)[0] != second
        assert client.status.operations == (messages.OperationStatus("a", 1, "succeeded"), messages.OperationStatus("b", 2, "succeeded"))
        assert client.status.reboots == 0
        time.sleep(TOGETHER_SECONDS)  # until then events count as the reset's own
        viewer.type("reboot\n")
        client.until(lambda status: status.reboots == 1)
        assert len(pod.qemu()) == 1


def test_paused_guest_stays_paused_after_a_reset(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect(READY)
        first, _ = boot_of(viewer)
        client.ask(messages.Suspend())
        status = client.ask(messages.Operate("a", 1, "Reset"))
        assert status.domain is not None
        assert (status.domain.state, status.domain.reason) == ("paused", "user")
        time.sleep(1)  # a guest that ran after its reset would report it
        assert (client.status.domain and client.status.domain.state) == "paused"
        client.ask(messages.Resume())
        viewer.expect(READY)
        assert boot_of(viewer)[0] != first
        assert client.status.reboots == 0


def test_reset_without_libvirtd_is_done_once_it_is_back(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect(READY)
        first, _ = boot_of(viewer)
        os.kill(pod.libvirtd(), signal.SIGKILL)
        client.call(messages.Operate("a", 1, "Reset"))
        found = client.until(over("a")).operation_of("a")
        assert found is not None
        if found.state == "failed":  # libvirt had taken the request when it ended
            assert "the operation may have been carried out" in found.message
        else:
            viewer.expect(READY)
            assert boot_of(viewer)[0] != first
        client.call(messages.Operate("a", 1, "Reset"))
        boot = boot_of(viewer)[0]
        time.sleep(1)  # no event reports that nothing happens
        assert boot_of(viewer)[0] == boot


def test_a_guest_gets_keys_and_an_nmi_once_for_each_id(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect(READY)
        for _ in range(2):
            client.ask(messages.Operate("a", 1, "SendKey", (29, 46), 200))
        seen = viewer.expect("key ae") + viewer.expect("key 9d")
        assert re.findall(r"key (\w+)", seen) == ["1d", "2e", "ae", "9d"]
        for _ in range(2):
            client.ask(messages.Operate("b", 2, "InjectNMI"))
        viewer.expect("NMI")
        time.sleep(0.5)
        assert not re.search("NMI|key", viewer.ask("uptime"))
        unknown = client.ask(messages.Operate("c", 3, "SendKey", (700,), 1)).operation_of("c")
        assert unknown is not None
        assert (unknown.state, "700" in unknown.message) == ("failed", True)


def test_a_guest_without_agent_reboots_by_the_power_button(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect(READY)
        first, _ = boot_of(viewer)
        (qemu,) = pod.qemu()
        client.ask(messages.Operate("a", 1, "SoftReboot"))
        viewer.expect("POWER-BUTTON")
        viewer.expect(READY)
        assert boot_of(viewer)[0] != first
        assert pod.qemu() == [qemu]
        assert client.status.ending is None
        viewer.type("deaf\n")
        client.ask(messages.Operate("b", 2, "SoftReboot"))
        viewer.expect("POWER-BUTTON")
        viewer.type("poweroff\n")
        viewer.expect(READY)
        viewer.type("poweroff\n")
        assert client.until(lambda status: status.ending is not None).ending is not None


def test_a_shutdown_becomes_a_power_off_when_its_time_is_cut(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(a_tiny_machine(run="deaf")))
        viewer.expect(READY)
        client.ask(messages.Shutdown(600.0))
        viewer.expect("POWER-BUTTON")
        deadline = Deadline(30, pod.qemu)
        client.call(messages.Shutdown(0.0))
        ending = client.until(lambda status: status.ending is not None).ending
        assert ending is not None
        assert (ending.kind, deadline.is_over) == ("destroyed", False)
