"""The README's second example: a cloud image with cloud-init, and an SSH login."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.kube import ROOT, Kubectl, console, forwarded
from tests.testbed import cloud_demo, ssh

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

BOOT_SECONDS: Final = 1200
"""An emulator alone on one processor needs two minutes, under load ten times that."""


def test_cloud_example_is_set_up_and_lets_its_owner_in(kubectl: Kubectl, debian: None, tmp_path: Path) -> None:
    key = ssh.make_key(tmp_path / "key")
    kubectl("create", "secret", "generic", "my-keys", f"--from-file={ssh.public(key)}")
    kubectl("apply", "-f", str(ROOT / "examples/cloud-init.yaml"))
    kubectl.api.ready("vm", "debian", timeout=180)
    with console(kubectl, "debian") as guest:
        guest.expect(cloud_demo.FINISHED, timeout=BOOT_SECONDS)

    def logged_in(port: int, key: Path, command: str) -> subprocess.CompletedProcess[str]:
        words = [*ssh.command(key, "debian", "127.0.0.1", port), command]
        return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)

    looks = {
        "cloud-init status": "status: done",
        "cat /etc/motd": "Set up by cloud-init.",
        "hostname": "debian",
        "sudo id --user": "0",
        "test $(df --output=size --block-size=1M / | tail -n 1) -gt 1800 && echo grown": "grown",  # to the 2 GiB of its disk
        "systemctl list-units --failed --plain --no-legend | wc --lines": "0",
    }
    with forwarded(kubectl, f"pod/{kubectl.api.get('vm', 'debian')['status']['podName']}", 22) as port:
        told = logged_in(port, key, "; ".join(looks))
        stranger = logged_in(port, ssh.make_key(tmp_path / "stranger"), "id")
    assert told.stdout.splitlines() == list(looks.values()), told.stderr
    assert stranger.returncode == 255
    assert "Permission denied (publickey)" in stranger.stderr

    def is_told_by_the_agent(vm: dict[str, Any]) -> bool:
        guest = vm["status"]["guest"]
        return (guest["hostname"], guest["os"]["id"]) == ("debian", "debian")

    kubectl.api.until("vm", "debian", is_told_by_the_agent, timeout=180, what="what the guest agent tells, in the machine's status")
    kubectl.api.delete("vm", "debian", timeout=120)
