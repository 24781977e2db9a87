from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
from collections.abc import Iterator

import pytest

from tests import spice_peer
from tests.cluster.kube import Console, Kubectl, console, eventually
from tests.cluster.manifests import tiny_vm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

VM = "verbs"
SPICE = "spice"
READY = "GUEST-READY"


@pytest.fixture(scope="module")
def machine(kubectl: Kubectl, testguest: None) -> Kubectl:
    del testguest
    vm = tiny_vm(VM)
    vm["spec"]["domain"]["devices"]["logSerialConsole"] = True
    kubectl.api.create(vm)
    kubectl.api.ready("vm", VM, timeout=90)
    return kubectl


@contextlib.contextmanager
def attached(machine: Kubectl, name: str = VM) -> Iterator[Console]:
    with console(machine, name) as guest:
        guest.skip_replay()
        yield guest


@contextlib.contextmanager
def spice(kubectl: Kubectl) -> Iterator[int]:
    command = kubectl.command("virt", "spice", SPICE, "--proxy-only")
    with subprocess.Popen(command, env=kubectl.environment, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout is not None
            yield int(json.loads(proxy.stdout.readline())["port"])
        finally:
            proxy.terminate()


def test_kubectl_logs_shows_the_console(machine: Kubectl) -> None:
    pod = machine.api.get("vm", VM)["status"]["podName"]
    eventually(lambda: READY in machine.api.log(pod, container="guest-console"), timeout=60, what="the guest's output")
    assert READY in machine("logs", pod, "-c", "guest-console")
    assert READY not in machine("logs", pod)


def test_guest_gets_keys_and_an_nmi(machine: Kubectl) -> None:
    with attached(machine) as guest:
        machine("virt", "sendkey", VM, "--keys", "KEY_LEFTCTRL,KEY_C", "--wait")
        assert re.findall(r"key (\w+)", guest.expect(r"(?s)key 1d.*key 9d").group(0)) == ["1d", "2e", "ae", "9d"]
        machine("virt", "nmi", VM, "--wait")
        guest.expect("NMI")


def test_guest_sees_the_keys_of_a_spice_client(kubectl: Kubectl, testguest: None) -> None:
    del testguest
    vm = tiny_vm(SPICE)
    vm["spec"]["domain"]["devices"]["graphics"] = [{"type": "spice"}]
    kubectl.api.create(vm)
    kubectl.api.ready("vm", SPICE, timeout=90)
    with (
        attached(kubectl, SPICE) as guest,
        spice(kubectl) as port,
        spice_peer.Session(lambda: socket.create_connection(("127.0.0.1", port), timeout=60)) as session,
        session.open(spice_peer.DISPLAY),
        session.open(spice_peer.INPUTS) as keyboard,
    ):
        keyboard.press(0x1E)
        guest.expect("key 1e")
        guest.expect("key 9e")


def test_soft_reboot_presses_the_power_button_poweroff_does_not(machine: Kubectl) -> None:
    with attached(machine) as guest:
        machine("virt", "softreboot", VM, "--wait")
        guest.expect("POWER-BUTTON")
        guest.expect(READY)
        machine("virt", "poweroff", VM, "--wait", "--timeout", "60s")
        with pytest.raises(AssertionError, match="console did not show"):
            guest.expect("POWER-BUTTON", timeout=20)  # the console ends with the guest
        assert guest.process.wait(timeout=60) == 0
    vm = machine.api.get("vm", VM)
    assert (vm["status"]["phase"], len(vm["status"]["attempts"])) == ("Stopped", 1)
