from __future__ import annotations

import re
from typing import Any, Final

import pytest

from tests.cluster.kube import Console, Kubectl, console
from tests.cluster.manifests import GUEST_IMAGE, linux_vm, with_disks
from tests.cluster.test_further_networks import definition, switch  # noqa: F401 - a fixture
from tests.damage import never_again

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

VM: Final = "disks-and-cards"
WWN: Final = "5000c500a1b2c3d4"
MAC: Final = "52:54:00:00:0e:0b"
SATA_MIB, SCSI_MIB = 2, 3


def a_machine() -> dict[str, Any]:
    image = {"type": "Image", "source": {"reference": GUEST_IMAGE, "sizeLimit": "1Gi"}}
    vm = with_disks(
        linux_vm(VM),
        {"name": "stick", **image, "target": {"bus": "usb"}, "bootOrder": 1},
        an_empty_disk("sata", SATA_MIB, ioTune={"totalIopsSec": 10}),
        an_empty_disk("scsi", SCSI_MIB, wwn=WWN, blockSize={"logical": 4096, "physical": 8192}),
        {"name": "cd", "type": "ConfigMap", "source": {"name": "on-the-cd"}},
        {"name": "drive", "device": "cdrom", "target": {"bus": "scsi"}},
    )
    domain = vm["spec"]["domain"]
    del domain["firmware"]
    unplugged = {"name": "unplugged", "network": "unplugged", "mac": MAC, "state": "down"}
    domain["devices"]["interfaces"] = [{"name": "default"}, unplugged]
    return vm


def an_empty_disk(bus: str, mebibytes: int, **members: Any) -> dict[str, Any]:
    source = {"size": f"{mebibytes}Mi"}
    return {"name": bus, "type": "EmptyDisk", "source": source, "target": {"bus": bus}, "serial": f"serial-of-{bus}", **members}


def found(guest: Console, kind: str, parent: str) -> str:
    (path,) = (each for each in guest.run(f"for d in /sys/block/{kind}*; do readlink -f $d; done").split() if f"/{parent}" in each)
    return path.rpartition("/")[2]


def words(guest: Console, command: str, count: int) -> list[str]:
    return guest.run(command).split()[-count:]


def seconds(guest: Console, command: str) -> float:
    clock = "cut -d ' ' -f 1 /proc/uptime"
    before, after = re.findall(r"^\d+\.\d\d(?=\r?$)", guest.run(f"{clock}; {command} >/dev/null 2>&1; {clock}", timeout=60), re.MULTILINE)
    return float(after) - float(before)


def test_a_guest_sees_its_disks_drives_and_cards(
    kubectl: Kubectl,
    testguest: None,
    further_networks: None,
    switch: str,  # noqa: F811 - the fixture
) -> None:
    contents = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "on-the-cd"}, "data": {"greeting": "hello-from-the-cd"}}
    kubectl.api.apply(contents, definition("unplugged", switch), a_machine())
    kubectl.api.ready("vm", VM, timeout=120)
    with console(kubectl, VM) as guest:
        guest.expect("GUEST-READY", timeout=180)
        assert "BOOT_IMAGE=vmlinuz" in guest.run("cat /proc/cmdline")
        for bus, parent, mebibytes in (("sata", "ata", SATA_MIB), ("scsi", "virtio", SCSI_MIB)):
            disk = found(guest, "sd", parent)
            assert words(guest, f"cat /sys/block/{disk}/size", 1) == [str(mebibytes << 11)]
            assert f"serial-of-{bus}" in guest.run(f"tr -cd 'a-z-' </sys/block/{disk}/device/vpd_pg80")
            assert words(guest, f"head -c 6 /dev/{disk} | od -An -tx1", 6) == ["00"] * 6
            guest.run(f"echo written-over-{bus} | dd of=/dev/{disk} conv=fsync; echo 3 >/proc/sys/vm/drop_caches")
            with never_again("a lost write"):
                assert f"\nwritten-over-{bus}" in guest.run(f"head -c 17 /dev/{disk}")
        scsi, sata = found(guest, "sd", "virtio"), found(guest, "sd", "ata")
        assert f"naa.{WWN}" in guest.run(f"cat /sys/block/{scsi}/device/wwid")
        sizes = (f"/sys/block/{scsi}/queue/{each}_block_size" for each in ("logical", "physical"))
        assert words(guest, f"cat {' '.join(sizes)}", 2) == ["4096", "8192"]
        assert seconds(guest, f"dd if=/dev/{sata} of=/dev/null bs=4k count=40 iflag=direct") > 2

        guest.run("mkdir -p /mnt")
        assert "hello-from-the-cd" in guest.run(f"mount -t iso9660 -o ro /dev/{found(guest, 'sr', 'ata')} /mnt; cat /mnt/greeting")
        assert "No medium found" in guest.run(f"head -c 1 /dev/{found(guest, 'sr', 'virtio')}")

        card = guest.run(f"grep -l {MAC} /sys/class/net/*/address").strip().split("/")[-2]
        plugged, unplugged = (f"cat /sys/class/net/{each}/carrier" for each in ({"eth0": "eth1", "eth1": "eth0"}[card], card))
        assert words(guest, f"{plugged}; {unplugged}", 2) == ["1", "0"]
