"""The README's second example: a cloud image with cloud-init."""

from __future__ import annotations

import contextlib
import functools
import random
import socket
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.kube import ROOT, Kubectl, console, eventually, port_of_guest
from tests.damage import never_again
from tests.testbed import cloud_demo, ssh

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

BOOT_SECONDS: Final = 1200
"""An emulator alone on a processor takes two minutes."""


ECHO: Final = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 9999))
while True:
    data, sender = s.recvfrom(2000)
    s.sendto(data.upper(), sender)
"""


def echoed(client: socket.socket) -> bool:
    data = b"x" * 1400
    with contextlib.suppress(TimeoutError):
        client.send(data)
        return client.recv(2000) == data.upper()
    return False


def test_cloud_example_is_set_up_and_lets_its_owner_in(kubectl: Kubectl, debian: None, tmp_path: Path) -> None:
    key = ssh.make_key(tmp_path / "key")
    kubectl("create", "secret", "generic", "my-keys", f"--from-file={ssh.public(key)}")
    kubectl("apply", "-f", str(ROOT / "examples/cloud-init.yaml"))
    kubectl.api.ready("vm", "debian", timeout=180)
    with console(kubectl, "debian") as guest:
        guest.expect(cloud_demo.FINISHED, timeout=BOOT_SECONDS)

    known = tmp_path / "known_hosts"
    options = (
        "BatchMode=yes",
        "IdentitiesOnly=yes",
        "StrictHostKeyChecking=accept-new",
        f"UserKnownHostsFile={known}",
        "ConnectTimeout=120",
        "HashKnownHosts=no",
    )

    def by_ssh(command: str, key: Path, *more: str) -> subprocess.CompletedProcess[str]:
        words = ("virt", command, "-i", str(key), *(part for each in options for part in ("-o", each)), *more)
        return subprocess.run(
            kubectl.command(*words),
            env=kubectl.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    looks = {
        "cloud-init status": "status: done",
        "cat /etc/motd": "Set up by cloud-init.",
        "hostname": "debian",
        "sudo id --user": "0",
        "test $(df --output=size --block-size=1M / | tail -n 1) -gt 1800 && echo grown": "grown",
        "systemctl list-units --failed --plain --no-legend | wc --lines": "0",
    }
    told = by_ssh("ssh", key, "debian@vm/debian", "--", "; ".join(looks))
    stranger = by_ssh("ssh", ssh.make_key(tmp_path / "stranger"), "debian@debian", "--", "id")
    assert f"vm-{kubectl.api.get('vm', 'debian')['metadata']['uid']} " in known.read_text()
    assert told.stdout.splitlines() == list(looks.values()), told.stderr
    assert stranger.returncode == 255
    assert "Permission denied (publickey)" in stranger.stderr

    (sent := tmp_path / "sent").write_bytes(random.Random(29).randbytes(8 << 20))
    assert by_ssh("scp", key, str(sent), "debian@debian:copy").returncode == 0
    assert by_ssh("scp", key, "debian@debian:copy", str(tmp_path / "back")).returncode == 0
    with never_again("wrong bytes"):
        assert (tmp_path / "back").read_bytes() == sent.read_bytes()

    by_ssh("ssh", key, "debian@debian", "--", f"nohup python3 -c '{ECHO}' >/dev/null 2>&1 &")
    with port_of_guest(kubectl, "debian", "udp/:9999") as port, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", port))
        client.settimeout(1)
        eventually(functools.partial(echoed, client), timeout=120, what="an answer of the guest's UDP port")

    def is_told_by_the_agent(vm: dict[str, Any]) -> bool:
        guest = vm["status"]["guest"]
        return (guest["hostname"], guest["os"]["id"]) == ("debian", "debian")

    kubectl.api.until("vm", "debian", is_told_by_the_agent, timeout=180, what="what the guest agent tells, in the machine's status")
    kubectl.api.delete("vm", "debian", timeout=120)
