from __future__ import annotations

import pytest

from tests import tpm
from tests.cluster.api import condition_of
from tests.cluster.kube import ROOT, Console, Kubectl, console
from tests.damage import never_again

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NAME = "uefi-tpm"
BOOT_SECONDS = 180
VARIABLE = "/sys/firmware/efi/efivars/Kept-5d307ca9-b3ef-428c-8861-06e72d69f223"


def booted(guest: Console) -> Console:
    guest.expect("GUEST-READY", timeout=BOOT_SECONDS)
    guest.run("mount -t efivarfs none /sys/firmware/efi/efivars")
    return guest


def test_uefi_and_tpm_state_survive_a_restart(kubectl: Kubectl, testguest: None) -> None:
    kubectl("apply", "-f", str(ROOT / "examples/uefi-tpm.yaml"))
    kubectl.api.ready("vm", NAME, timeout=120)
    with console(kubectl, NAME) as screen:
        guest = booted(screen)
        assert "4711" in guest.run("cat /sys/class/dmi/id/product_serial")
        assert "rack-7" in guest.run("cat /sys/class/dmi/id/chassis_asset_tag")
        tpm.write_word(guest.run)
        guest.run(f"printf '\\007\\000\\000\\000remember' >{VARIABLE}")
    migratable = condition_of(kubectl.api.get("vm", NAME), "Migratable")
    assert migratable["status"] == "False"
    assert "persistent state of its UEFI and TPM" in migratable["message"]

    kubectl.api.verb(NAME, "restart")

    kubectl.api.until(
        "vm", NAME, lambda vm: (vm["status"]["attempt"], vm["status"]["phase"]) == (2, "Running"), timeout=240, what="a second start"
    )
    with console(kubectl, NAME) as screen:
        guest = booted(screen)
        with never_again("a lost write"):
            assert tpm.has_word(guest.run)
            assert "remember" in guest.run(f"tail -c 8 {VARIABLE}")
