from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import libvirt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.hypervisor import connection, conversion
from launcher.hypervisor.port import Device, Disks, HypervisorError, Memory, Progress, Terms


def test_devices_have_their_names_and_places() -> None:
    devices = """
      <disk type='file' device='disk'>
        <iotune><total_iops_sec>7</total_iops_sec><total_iops_sec_max>0</total_iops_sec_max><group_name>g</group_name></iotune>
        <target dev='vda' bus='virtio'/><address type='pci' domain='0x0000' bus='0x04' slot='0x00' function='0x1'/>
      </disk>
      <disk type='file' device='cdrom'><target dev='sda' bus='sata'/>
        <address type='drive' controller='0' bus='0' target='0' unit='2'/></disk>
      <disk type='file' device='disk'><target dev='sdb' bus='usb'/><address type='usb' bus='0' port='3'/></disk>
      <controller type='usb' index='0'><address type='pci' bus='0x02'/></controller>
      <interface type='ethernet'><mac address='02:00:00:00:00:01'/><target dev='tap0'/><address type='pci' bus='0x01'/></interface>
      <interface type='user'><link state='down'/><address type='ccw'/></interface>
      <interface type='hostdev'/>
      <disk/>
    """
    assert conversion.devices(ET.fromstring(f"<domain><devices>{devices}</devices></domain>")) == (
        Device("disk", "vda", "pci 0000:04:00.1", limits=(("totalIopsSec", 7),)),
        Device("disk", "sda", "drive 0:0:0:2", is_empty=True),
        Device("disk", "sdb", "usb 0:3"),
        Device("interface", "tap0", "pci 0000:01:00.0", "02:00:00:00:00:01", is_up=True),
        Device("interface", "", "ccw", is_up=False),
        Device("interface", ""),
        Device("disk", ""),
    )
    assert conversion.devices(ET.fromstring("<domain/>")) == ()


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_the_answer_of_an_agent_is_what_it_returned(value: object) -> None:
    assert conversion.agent_answer(json.dumps({"return": value})) == value


@pytest.mark.parametrize(
    "text", ["", "1", "[]", "{}", '{"error": {}}', '{"return": ', " " * conversion.MAX_ANSWER + '{"return": 1}'], ids=len
)
def test_malformed_agent_answers_are_reported(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's own among them
        conversion.agent_answer(text)


def test_an_answer_that_is_nested_too_deeply_is_told() -> None:
    with pytest.raises(RecursionError):
        conversion.agent_answer('{"return": ' + "[" * 100_000 + "]" * 100_000 + "}")


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ("", 0),
        ("<vsock/>", 0),
        ("<vsock><cid auto='yes'/></vsock>", 0),
        ("<vsock><cid auto='yes' address='3'/></vsock>", 3),
        ("<vsock><cid auto='no' address='x'/></vsock>", 0),
    ],
)
def test_the_address_of_sockets_is_the_one_that_libvirt_chose(devices: str, expected: int) -> None:
    assert conversion.cid(ET.fromstring(f"<domain><devices>{devices}</devices></domain>")) == expected


def test_figures_of_a_migration() -> None:
    stats = {
        "type": 2,
        "time_elapsed": 12,
        "memory_total": 3,
        "memory_processed": 2,
        "memory_remaining": 1,
        "memory_iteration": 4,
        "downtime": 5,
    }
    assert conversion.progress(stats) == Progress(12, 3, 2, 1, 4, 5)
    assert conversion.progress({"type": 0}) is None


def test_migration_rates_are_converted_to_bytes() -> None:
    stats = {
        "time_elapsed": 12,
        "data_total": 30,
        "data_processed": 20,
        "data_remaining": 10,
        "memory_bps": 5,
        "disk_bps": 2,
        "memory_dirty_rate": 3,
        "memory_page_size": 4096,
    }
    found = conversion.progress(stats)
    assert found is not None
    assert (found.data_total_bytes, found.data_processed_bytes, found.data_remaining_bytes) == (30, 20, 10)
    assert (found.bytes_per_second, found.dirty_bytes_per_second) == (7, 3 * 4096)


def test_disk_copy_rate_is_computed_until_memory_moves() -> None:
    copying = {"time_elapsed": 500, "disk_processed": 1000, "data_processed": 1000}
    found = conversion.progress(copying)
    assert found is not None
    assert found.bytes_per_second == 2000
    found = conversion.progress({**copying, "memory_total": 10, "memory_bps": 7})
    assert found is not None
    assert found.bytes_per_second == 7
    assert conversion.progress({"time_elapsed": 0, "disk_processed": 1}) is not None


@pytest.mark.parametrize(("shallow", "flag"), [(True, libvirt.VIR_MIGRATE_NON_SHARED_INC), (False, libvirt.VIR_MIGRATE_NON_SHARED_DISK)])
def test_copied_disks_are_named_and_have_their_own_uri(shallow: bool, flag: int) -> None:
    disks = Disks(("vda", "vdc"), shallow, uri="unix:///disks")
    assert conversion.migration_parameters(Terms(), disks) == ({"migrate_disks": ["vda", "vdc"], "disks_uri": "unix:///disks"}, flag)
    assert conversion.migration_parameters(Terms(), Disks(uri="unix:///disks")) == ({}, 0)


def test_disks_have_their_paths_at_the_target() -> None:
    xml = (
        "<domain><devices><disk><source file='/{}/a' /><backingStore><source file='/plugged/a' /></backingStore></disk></devices></domain>"
    )
    disks = Disks(("vda",), moved=(("/plugged/a", "/own/a"), ("/plugged/b", "/own/b")))
    moved = conversion.at_target(xml.format("plugged"), disks)
    assert moved is not None
    assert [each.get("file") for each in ET.fromstring(moved).iter("source")] == ["/own/a", "/plugged/a"]
    assert conversion.at_target(xml.format("own"), disks) is None


@pytest.mark.parametrize(
    ("bandwidth", "copied", "share"), [(8 << 20, (), 8), (8 << 20, ("vda",), 8), (8 << 20, ("vda", "vdb"), 4), (1, ("vda", "vdb"), 1)]
)
def test_disks_share_the_bandwidth_that_libvirt_gives_to_each(bandwidth: int, copied: tuple[str, ...], share: int) -> None:
    parameters, _ = conversion.migration_parameters(Terms(bandwidth), Disks(copied))
    assert parameters["bandwidth"] == share


def test_unsafe_flag_is_set_only_for_judged_shared_disks() -> None:
    assert conversion.migration_parameters(Terms(), Disks(shared=True)) == ({}, libvirt.VIR_MIGRATE_UNSAFE)
    assert conversion.migration_parameters(Terms(), Disks()) == ({}, 0)
    assert not connection._MIGRATE_FLAGS & libvirt.VIR_MIGRATE_UNSAFE


def a_guest_with_memory(devices: int = 1) -> ET.Element:
    device = "<memory model='virtio-mem'><target><size>524288</size><requested>2048</requested><current>1024</current></target></memory>"
    return ET.fromstring(f"<domain><memory unit='KiB'>786432</memory><devices>{device * devices}</devices></domain>")


def test_memory_at_boot_is_without_the_device() -> None:
    assert conversion.memory(a_guest_with_memory()) == Memory(256 << 20, 1 << 20, 2 << 20)
    assert conversion.memory(a_guest_with_memory(0)) is conversion.memory(a_guest_with_memory(2)) is None


@pytest.mark.parametrize("amount", [256 << 20, 384 << 20])
def test_device_is_asked_for_the_memory_above_that_at_boot(amount: int) -> None:
    requested = ET.fromstring(conversion.with_memory(a_guest_with_memory(), amount)).find("target/requested")
    assert requested is not None
    assert (requested.text, requested.get("unit")) == (str(amount - (256 << 20)), "b")


def test_memory_below_that_at_boot_is_refused() -> None:
    with pytest.raises(HypervisorError, match="started with 256 MiB"):
        conversion.with_memory(a_guest_with_memory(), (256 << 20) - 1)


def test_drive_gets_only_another_medium() -> None:
    drive = (
        "<disk type='file' device='cdrom'><driver name='qemu' type='raw'/><source file='/old'/><backingStore/>"
        "<target dev='sda' bus='sata'/><alias name='ua-cd'/></disk>"
    )
    domain = ET.fromstring(f"<domain><devices>{drive}</devices></domain>")
    wanted = "<disk type='block' device='cdrom'><driver type='qcow2'/><source dev='/new'/><target dev='sda'/></disk>"
    found = conversion.with_medium(domain, "sda", wanted)
    assert found is not None
    disk = ET.fromstring(found)
    assert (disk.get("type"), sorted(each.tag for each in disk)) == ("block", ["alias", "driver", "source", "target"])
    assert conversion.source_of(disk) == {"dev": "/new"}
    assert [each.attrib for each in disk.iter("driver")] == [{"name": "qemu", "type": "qcow2"}]
    assert conversion.with_medium(domain, "sda", drive) is None
