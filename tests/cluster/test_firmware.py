"""The example with UEFI and a TPM: what the guest writes there outlasts the pod."""

from __future__ import annotations

from typing import Any

import pytest

from tests import tpm
from tests.cluster.kube import ROOT, Console, Kubectl, console, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NAME = "uefi-tpm"
BOOT_SECONDS = 180
VARIABLE = "/sys/firmware/efi/efivars/Kept-5d307ca9-b3ef-428c-8861-06e72d69f223"


def seen(kubectl: Kubectl) -> dict[str, Any]:
    found: dict[str, Any] = kubectl.json("get", "vm", NAME)["status"]
    return found


def booted(guest: Console) -> Console:
    """Wait for the guest's shell, and mount the variables of its UEFI."""
    guest.expect("GUEST-READY", timeout=BOOT_SECONDS)
    guest.run("mount -t efivarfs none /sys/firmware/efi/efivars")
    return guest


def test_what_a_guest_writes_to_its_uefi_and_its_tpm_is_there_after_a_restart(kubectl: Kubectl, testguest: None) -> None:
    kubectl("apply", "-f", str(ROOT / "examples/uefi-tpm.yaml"))
    kubectl("wait", "vm", NAME, "--for=condition=Ready", "--timeout=120s", timeout=130)
    with console(kubectl, NAME) as screen:
        guest = booted(screen)
        assert "4711" in guest.run("cat /sys/class/dmi/id/product_serial")
        assert "rack-7" in guest.run("cat /sys/class/dmi/id/chassis_asset_tag")
        tpm.write_word(guest.run)
        guest.run(f"printf '\\007\\000\\000\\000remember' >{VARIABLE}")
    conditions = {each["type"]: each for each in seen(kubectl)["conditions"]}
    assert conditions["Migratable"]["status"] == "False"
    assert "persistent state of its UEFI and TPM" in conditions["Migratable"]["message"]

    kubectl("virt", "restart", NAME)

    eventually(lambda: seen(kubectl).get("attempt") == 2 and seen(kubectl).get("phase") == "Running", timeout=240, what="a second start")
    with console(kubectl, NAME) as screen:
        guest = booted(screen)
        assert tpm.has_word(guest.run)
        assert "remember" in guest.run(f"tail -c 8 {VARIABLE}")
