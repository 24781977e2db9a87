"""``launcher.hypervisor.port`` for the fake, libvirt's test driver, and libvirtd with QEMU."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import libvirt
import pytest

from apiserver.apis.virt.places import layout
from apiserver.apis.virt.spec import screenshot
from launcher.domain.states import State
from launcher.hypervisor.connection import LibvirtHypervisor
from launcher.hypervisor.daemon import LIBVIRTD, Daemon
from launcher.hypervisor.emulator import Emulator
from launcher.hypervisor.port import (
    NO_TERMS,
    Device,
    Disks,
    DomainExists,
    DomainNotFound,
    Hypervisor,
    HypervisorError,
    OperationInvalid,
    Terms,
    Unavailable,
)
from tests.fakes.hypervisor import FakeHypervisor
from tests.own_time import within
from tests.pictures import png

NAME = "default_contract"


def xml_for(kind: str) -> str:
    emulator = "<emulator>/usr/bin/qemu-system-x86_64</emulator>" if kind == "qemu" else ""
    return (
        f"<domain type='{kind}'><name>{NAME}</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>"
        f"<os><type arch='x86_64'>hvm</type></os><features><acpi/></features><devices>{emulator}</devices></domain>"
    )


@contextmanager
def private_libvirtd() -> Iterator[Daemon]:
    directory = Path(tempfile.mkdtemp(prefix="hv"))
    run = directory / "run"
    run.mkdir()
    daemon = Daemon(run, directory / "cache")
    daemon.cache.mkdir()
    daemon.prepare("11111111-2222-4333-8444-555555555555")
    passwd = directory / "passwd"
    passwd.write_text(f"root:x:0:0::/root:/bin/sh\nqemu:x:{layout.USER_ID}:{layout.USER_ID}::/:/bin/sh\n")
    subprocess.run(["chown", "-R", f"{layout.USER_ID}:{layout.USER_ID}", directory], check=True)
    user = str(layout.USER_ID)
    script = f"mount --bind {passwd} /etc/passwd && exec setpriv --reuid {user} --regid {user} --clear-groups --inh-caps=-all {LIBVIRTD}"
    process = subprocess.Popen(["unshare", "--mount", "sh", "-c", script], env=daemon.environment(), stderr=subprocess.DEVNULL)
    try:
        yield daemon
    finally:
        for path in (run / "libvirt/qemu/run").glob("*_*.pid"):
            with suppress(FileNotFoundError, ValueError, ProcessLookupError):  # the domain is ending
                os.kill(int(path.read_text()), signal.SIGKILL)
        process.terminate()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


@asynccontextmanager
async def connected(uri: str, emulator: Emulator | None = None) -> AsyncIterator[LibvirtHypervisor]:
    hypervisor = LibvirtHypervisor(uri, emulator=emulator)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(hypervisor.run())
        async with asyncio.timeout(30):
            await hypervisor.ready()
        try:
            yield hypervisor
        finally:
            await hypervisor.destroy(NAME)
            await undefine(hypervisor)
            running.cancel()


async def undefine(hypervisor: LibvirtHypervisor) -> None:
    connection: Any = hypervisor._connection
    for domain in connection.listAllDomains():
        if domain.name() == NAME:
            await asyncio.to_thread(domain.undefine)


@pytest.fixture(scope="module")
def libvirtd() -> Iterator[str]:
    with private_libvirtd() as daemon:
        yield daemon.uri


@pytest.fixture(params=["fake", "test", pytest.param("qemu", marks=pytest.mark.host)])
async def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def hypervisor(kind: str, request: pytest.FixtureRequest) -> AsyncIterator[Hypervisor]:
    match kind:
        case "fake":
            yield FakeHypervisor()
        case "test":
            async with connected("test:///default") as made:
                yield made
        case _:
            async with connected(request.getfixturevalue("libvirtd")) as made:
                yield made


async def test_an_absent_domain_is_none(hypervisor: Hypervisor) -> None:
    assert await hypervisor.observe(NAME) is None


async def test_a_created_domain_waits_before_its_first_instruction(hypervisor: Hypervisor, kind: str) -> None:
    await hypervisor.create(NAME, xml_for(kind))
    domain = await hypervisor.observe(NAME)
    assert domain is not None
    assert (domain.name, domain.state, domain.active, domain.arrived) == (NAME, State.PAUSED, True, True)
    assert not domain.agent_connected
    assert domain.cid == 0


async def test_what_it_learns_changes_no_domain(hypervisor: Hypervisor, kind: str) -> None:
    await hypervisor.create(NAME, xml_for(kind))
    before = await hypervisor.observe(NAME)
    await hypervisor.learn("no cache of libvirt's")
    assert await hypervisor.observe(NAME) == before


async def test_a_domain_with_sockets_to_its_node_has_their_address(hypervisor: Hypervisor, kind: str) -> None:
    if kind == "qemu" and not Path("/dev/vhost-vsock").exists():
        pytest.skip("this machine has no /dev/vhost-vsock")
    sockets = "<vsock model='virtio'><cid auto='no' address='4711'/></vsock>"
    await hypervisor.create(NAME, xml_for(kind).replace("</devices>", f"{sockets}</devices>"))
    domain = await hypervisor.observe(NAME)
    assert domain is not None
    assert domain.cid == 4711


async def test_a_domain_says_which_disks_it_has(hypervisor: Hypervisor, kind: str) -> None:
    drives = "<disk type='file' device='cdrom'><target dev='sdc' bus='sata'/><readonly/></disk>"
    await hypervisor.create(NAME, xml_for(kind).replace("</devices>", f"{drives}</devices>"))
    domain = await hypervisor.observe(NAME)
    assert domain is not None
    assert [(each.kind, each.target) for each in domain.devices if each.target == "sdc"] == [("disk", "sdc")]


async def test_second_domain_of_a_name_is_refused_and_the_first_kept(hypervisor: Hypervisor, kind: str) -> None:
    await hypervisor.create(NAME, xml_for(kind))
    before = await hypervisor.observe(NAME)
    with pytest.raises(DomainExists):
        await hypervisor.create(NAME, xml_for(kind))
    assert await hypervisor.observe(NAME) == before


async def test_even_a_domain_that_is_off_is_not_started_again(hypervisor: Hypervisor, kind: str) -> None:
    await hypervisor.create(NAME, xml_for(kind))
    await hypervisor.destroy(NAME)
    with pytest.raises(DomainExists):
        await hypervisor.create(NAME, xml_for(kind))


async def test_a_document_that_is_none_leaves_no_domain(hypervisor: Hypervisor) -> None:
    with pytest.raises(HypervisorError, match="start domain"):
        await hypervisor.create(NAME, "<domain")
    assert await hypervisor.observe(NAME) is None


async def test_resume_and_suspend_can_be_repeated(hypervisor: Hypervisor, kind: str) -> None:
    await hypervisor.create(NAME, xml_for(kind))
    for call, state in ((hypervisor.resume, State.RUNNING), (hypervisor.suspend, State.PAUSED), (hypervisor.resume, State.RUNNING)):
        for _ in range(2):
            await call(NAME)
            domain = await hypervisor.observe(NAME)
            assert domain is not None
            assert domain.state is state


async def test_destroy_can_be_repeated_and_says_why_the_domain_is_off(hypervisor: Hypervisor, kind: str) -> None:
    await hypervisor.destroy(NAME)
    await hypervisor.create(NAME, xml_for(kind))
    for _ in range(2):
        await hypervisor.destroy(NAME)
        domain = await hypervisor.observe(NAME)
        assert domain is not None
        assert (domain.state, domain.reason, domain.active) == (State.SHUTOFF, "destroyed", False)


async def test_an_absent_domain_cannot_change(hypervisor: Hypervisor) -> None:
    for call in (hypervisor.resume, hypervisor.suspend, hypervisor.reset, hypervisor.press_power_button, hypervisor.reboot):
        with pytest.raises(DomainNotFound):
            await call(NAME)
    with pytest.raises(DomainNotFound):
        await hypervisor.save(NAME, "/nowhere")
    with pytest.raises(DomainNotFound):
        await hypervisor.migrate(NAME, libvirt_uri="qemu+unix:///session?socket=/nowhere", data_uri="unix:///nowhere")


ALL_TERMS = Terms(bandwidth_bytes=5 << 20, max_downtime_milliseconds=700, parallel_connections=4, auto_converge=True)


@pytest.mark.parametrize("terms", [NO_TERMS, ALL_TERMS, Terms(bandwidth_bytes=1)], ids=["none", "all", "one byte a second"])
async def test_failed_migration_keeps_the_domain_under_all_terms(hypervisor: Hypervisor, kind: str, terms: Terms) -> None:
    await hypervisor.create(NAME, xml_for(kind))
    await hypervisor.resume(NAME)
    with pytest.raises(HypervisorError):
        await hypervisor.migrate(NAME, libvirt_uri="qemu+unix:///session?socket=/nowhere", data_uri="unix:///nowhere", terms=terms)
    domain = await hypervisor.observe(NAME)
    assert domain is not None
    assert domain.state is State.RUNNING


@pytest.mark.parametrize("shallow", [True, False])
async def test_a_migration_to_nowhere_leaves_the_domain_with_its_disks(hypervisor: Hypervisor, kind: str, shallow: bool) -> None:
    await hypervisor.create(NAME, xml_for(kind))
    await hypervisor.resume(NAME)
    disks = Disks(("vda", "vdb"), shallow, uri="unix:///nowhere")
    with pytest.raises(HypervisorError):
        await hypervisor.migrate(NAME, libvirt_uri="qemu+unix:///session?socket=/nowhere", data_uri="unix:///nowhere", disks=disks)
    domain = await hypervisor.observe(NAME)
    assert domain is not None
    assert domain.state is State.RUNNING


async def test_a_domain_that_is_off_cannot_be_resumed(hypervisor: Hypervisor, kind: str) -> None:
    await hypervisor.create(NAME, xml_for(kind))
    await hypervisor.destroy(NAME)
    with pytest.raises(OperationInvalid):
        await hypervisor.resume(NAME)


async def test_reset_keeps_the_processor_state_and_is_no_reboot(hypervisor: Hypervisor, kind: str) -> None:
    if kind == "test":  # it resets no domain
        pytest.skip("libvirt's test driver has no virDomainReset")
    await hypervisor.create(NAME, xml_for(kind))
    for call, state in ((hypervisor.suspend, State.PAUSED), (hypervisor.resume, State.RUNNING)):
        await call(NAME)
        await hypervisor.reset(NAME)
        await asyncio.sleep(0.3)  # the event comes later
        domain = await hypervisor.observe(NAME)
        assert domain is not None
        assert (domain.state, domain.reboots) == (state, 0)


async def test_a_domain_that_is_off_cannot_be_reset(hypervisor: Hypervisor, kind: str) -> None:
    await hypervisor.create(NAME, xml_for(kind))
    await hypervisor.destroy(NAME)
    with pytest.raises(OperationInvalid):
        await hypervisor.reset(NAME)


async def test_the_power_button_can_be_pressed(hypervisor: Hypervisor, kind: str) -> None:
    await hypervisor.create(NAME, xml_for(kind))
    await hypervisor.resume(NAME)
    await hypervisor.press_power_button(NAME)


async def test_only_a_running_domain_takes_signals(hypervisor: Hypervisor, kind: str) -> None:
    if kind == "test":
        pytest.skip("libvirt's test driver has no virDomainInjectNMI and no virDomainSendKey")

    async def keys(name: str) -> None:
        await hypervisor.send_keys(name, (29, 56, 111), 100)

    await hypervisor.create(NAME, xml_for(kind))
    await hypervisor.resume(NAME)
    for call in (hypervisor.inject_nmi, keys, hypervisor.reboot):
        await call(NAME)
    await hypervisor.destroy(NAME)
    for call in (hypervisor.inject_nmi, keys, hypervisor.reboot):
        with pytest.raises(OperationInvalid):
            await call(NAME)


async def test_every_change_is_announced(hypervisor: Hypervisor, kind: str) -> None:
    announced = asyncio.Event()
    hypervisor.subscribe(announced.set)
    steps: tuple[Callable[[], Awaitable[None]], ...] = (
        lambda: hypervisor.create(NAME, xml_for(kind)),
        lambda: hypervisor.resume(NAME),
        lambda: hypervisor.destroy(NAME),
    )
    for step in steps:
        await asyncio.sleep(0.05)
        announced.clear()
        await step()
        async with asyncio.timeout(30):
            await announced.wait()


@pytest.fixture
def file() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="hv"))
    os.chown(directory, layout.USER_ID, layout.USER_ID)
    yield directory / "image"
    shutil.rmtree(directory)


async def saved(hypervisor: Hypervisor, kind: str, file: Path) -> str:
    await hypervisor.create(NAME, xml_for(kind))
    await hypervisor.resume(NAME)
    before = await hypervisor.observe(NAME)
    await hypervisor.save(NAME, str(file))
    domain = await hypervisor.observe(NAME)
    assert before is not None
    assert domain is not None
    assert (domain.state, domain.reason, domain.active) == (State.SHUTOFF, "saved", False)
    if isinstance(hypervisor, LibvirtHypervisor):
        await undefine(hypervisor)
    elif isinstance(hypervisor, FakeHypervisor):
        hypervisor.vanish(NAME)
    return before.uuid


def xml_of(hypervisor: Hypervisor, kind: str, uuid: str, file: Path) -> str:
    if kind == "test":
        return xml_for(kind).replace("<memory", f"<uuid>{uuid}</uuid><memory")
    return file.read_bytes()[92:].partition(b"\0")[0].decode()


async def test_saved_domain_is_restored_paused_and_persistent(hypervisor: Hypervisor, kind: str, file: Path) -> None:
    uuid = await saved(hypervisor, kind, file)
    if kind != "test":  # it keeps the umask
        assert file.stat().st_mode & 0o777 == 0o600
    await hypervisor.restore(NAME, str(file), xml_of(hypervisor, kind, uuid, file))
    domain = await hypervisor.observe(NAME)
    assert domain is not None
    assert (domain.uuid if kind != "fake" else uuid, domain.state) == (uuid, State.PAUSED)
    await hypervisor.resume(NAME)
    await hypervisor.destroy(NAME)
    domain = await hypervisor.observe(NAME)
    assert domain is not None
    assert (domain.state, domain.reason) == (State.SHUTOFF, "destroyed")


async def test_restore_with_other_hardware_fails_and_keeps_the_file(hypervisor: Hypervisor, kind: str, file: Path) -> None:
    if kind == "test":
        pytest.skip("libvirt's test driver compares no hardware")
    uuid = await saved(hypervisor, kind, file)
    xml, content = xml_of(hypervisor, kind, uuid, file), file.read_bytes()
    changed = xml.replace(">32768<", ">65536<").replace(">32<", ">64<")
    assert changed != xml
    with pytest.raises(HypervisorError, match="memory"):
        await hypervisor.restore(NAME, str(file), changed)
    assert await hypervisor.observe(NAME) is None
    assert file.read_bytes() == content
    await hypervisor.restore(NAME, str(file), xml)


async def test_failed_save_leaves_the_domain_running(hypervisor: Hypervisor, kind: str, file: Path) -> None:
    await hypervisor.create(NAME, xml_for(kind))
    await hypervisor.resume(NAME)
    if isinstance(hypervisor, FakeHypervisor):
        hypervisor.fail_next = HypervisorError("save domain: no such directory")
    with pytest.raises(HypervisorError, match="save domain"):
        await hypervisor.save(NAME, str(file.parent / "absent" / "image"))
    domain = await hypervisor.observe(NAME)
    assert domain is not None
    assert domain.state is State.RUNNING


async def test_a_domain_that_is_off_cannot_be_saved(hypervisor: Hypervisor, kind: str, file: Path) -> None:
    await hypervisor.create(NAME, xml_for(kind))
    await hypervisor.destroy(NAME)
    with pytest.raises(OperationInvalid):
        await hypervisor.save(NAME, str(file))


async def test_without_a_migration_abort_does_nothing(hypervisor: Hypervisor, kind: str) -> None:
    await hypervisor.create(NAME, xml_for(kind))
    await hypervisor.abort_job(NAME)
    assert await hypervisor.progress(NAME) is None
    assert await hypervisor.progress(NAME, completed=True) is None


async def test_statistics_are_of_an_active_domain(hypervisor: Hypervisor, kind: str) -> None:
    with pytest.raises(DomainNotFound):
        await hypervisor.statistics(NAME)
    await hypervisor.create(NAME, xml_for(kind))
    found = await hypervisor.statistics(NAME)
    assert kind == "test" or isinstance(found["cpu.time"], int)  # the test driver counts no time
    await hypervisor.destroy(NAME)
    with pytest.raises((DomainNotFound, OperationInvalid)):
        await hypervisor.statistics(NAME)


async def test_agent_query_without_an_agent_is_invalid(hypervisor: Hypervisor, kind: str) -> None:
    await hypervisor.create(NAME, xml_for(kind))
    await hypervisor.resume(NAME)
    with pytest.raises(OperationInvalid):
        await hypervisor.ask_agent(NAME, "guest-info")
    with pytest.raises(DomainNotFound):
        await hypervisor.ask_agent("another", "guest-info")


async def test_screenshot_is_a_png_of_limited_size(hypervisor: Hypervisor, kind: str) -> None:
    video = "<video><model type='vga'/></video>" if kind == "qemu" else ""
    await hypervisor.create(NAME, xml_for(kind).replace("</devices>", f"{video}</devices>"))
    if isinstance(hypervisor, FakeHypervisor):
        hypervisor.picture = png(720, 400)
    await hypervisor.resume(NAME)
    picture = await hypervisor.screenshot(NAME, screenshot.MAX_BYTES)
    assert picture.startswith(screenshot.SIGNATURE)
    assert kind == "test" or not screenshot.problem(picture)  # the test driver has its own picture
    with pytest.raises(OperationInvalid):
        await hypervisor.screenshot(NAME, len(picture) - 1)
    with pytest.raises(DomainNotFound):
        await hypervisor.screenshot("another", screenshot.MAX_BYTES)


async def test_secret_replaces_an_older_one_and_is_private(hypervisor: Hypervisor, kind: str) -> None:
    known = "11111111-2222-4333-8444-666666666666"
    if kind == "test":  # it has no secrets
        with pytest.raises(OperationInvalid):
            await hypervisor.keep_secret(known, b"one")
        return
    for value in (b"one", b"\x00\xfftwo"):
        await hypervisor.keep_secret(known, value)
    other = "11111111-2222-4333-8444-777777777777"
    await hypervisor.keep_secret(other, b"key", "ceph")
    if isinstance(hypervisor, LibvirtHypervisor):
        connection: Any = hypervisor._connection
        assert connection.numOfSecrets() == 2
        assert connection.secretLookupByUUIDString(other).usageType() == libvirt.VIR_SECRET_USAGE_TYPE_CEPH
        with pytest.raises(libvirt.libvirtError, match="private"):
            connection.secretLookupByUUIDString(known).value()


CARD = "52:54:00:12:34:56"


@pytest.fixture
def blank() -> Iterator[str]:
    with tempfile.NamedTemporaryFile(prefix="hv") as file:
        file.truncate(1 << 20)
        os.fchmod(file.fileno(), 0o666)
        yield file.name


async def with_devices(hypervisor: Hypervisor, kind: str, blank: str) -> None:
    disk = f"<disk type='file' device='disk'><source file='{blank}'/><target dev='vda' bus='virtio'/></disk>"
    card = f"<interface type='user'><mac address='{CARD}'/><model type='virtio'/></interface>"
    await hypervisor.create(NAME, xml_for(kind).replace("</devices>", f"{disk}{card}</devices>"))


async def device(hypervisor: Hypervisor, kind: str) -> Device:
    found = await hypervisor.observe(NAME)
    assert found is not None
    return next(each for each in found.devices if each.kind == kind and (kind == "disk") == (not each.mac))


async def test_limits_of_a_disk_are_replaced_as_a_whole(hypervisor: Hypervisor, kind: str, blank: str) -> None:
    await with_devices(hypervisor, kind, blank)
    assert (await device(hypervisor, "disk")).limits == ()
    if kind == "test":  # it compares an average with a maximum of 0, which means none
        with pytest.raises(HypervisorError, match="cannot be set higher"):
            await hypervisor.limit_disk(NAME, "vda", {"readBytesSec": 1 << 20})
        return
    for limits in ({"totalIopsSec": 500, "totalIopsSecMax": 900}, {"readBytesSec": 1 << 20, "writeIopsSec": 5}, {}):
        for _ in range(2):
            await hypervisor.limit_disk(NAME, "vda", limits)
            assert dict((await device(hypervisor, "disk")).limits) == limits
    with pytest.raises(DomainNotFound):
        await hypervisor.limit_disk("another", "vda", {})


async def test_drive_gets_a_medium_and_ejects_it(hypervisor: Hypervisor, kind: str, blank: str) -> None:
    def drive(source: str = "") -> str:
        return f"<disk type='file' device='cdrom'>{source}<target dev='sda' bus='scsi'/><readonly/></disk>"

    controller = "<controller type='scsi' index='0' model='virtio-scsi'/>"
    await hypervisor.create(NAME, xml_for(kind).replace("</devices>", f"{controller}{drive()}</devices>"))
    assert (await device(hypervisor, "disk")).is_empty
    if kind == "test":  # it does not update devices
        with pytest.raises(OperationInvalid):
            await hypervisor.change_medium(NAME, "sda", drive(f"<source file='{blank}'/>"))
        return
    for source, is_empty in ((f"<source file='{blank}'/>", False), ("", True)):
        for _ in range(2):
            assert await hypervisor.change_medium(NAME, "sda", drive(source))
            assert (await device(hypervisor, "disk")).is_empty is is_empty
    with pytest.raises(OperationInvalid):
        await hypervisor.change_medium(NAME, "sdz", drive())
    with pytest.raises(DomainNotFound):
        await hypervisor.change_medium("another", "sda", drive())


def a_disk(target: str, bus: str, file: str) -> str:
    return f"<disk type='file' device='disk'><source file='{file}'/><target dev='{target}' bus='{bus}'/></disk>"


async def targets(hypervisor: Hypervisor) -> list[str]:
    found = await hypervisor.observe(NAME)
    assert found is not None
    return [each.target for each in found.devices if each.kind == "disk"]


async def test_disk_is_attached_once_and_only_the_guest_can_release_it(hypervisor: Hypervisor, kind: str, blank: str) -> None:
    disk = a_disk("vda", "virtio", blank)
    await hypervisor.create(NAME, xml_for(kind))
    await hypervisor.resume(NAME)
    if kind == "test":  # it attaches no disk to a running domain
        with pytest.raises(HypervisorError):
            await hypervisor.attach_disk(NAME, "vda", disk)
        assert await hypervisor.detach_disk(NAME, "vda")
        return
    for _ in range(2):
        await hypervisor.attach_disk(NAME, "vda", disk)
        assert await targets(hypervisor) == ["vda"]
    assert await hypervisor.detach_disk(NAME, "vdz")
    if isinstance(hypervisor, FakeHypervisor):
        hypervisor.keeps_disks = True
    assert not await hypervisor.detach_disk(NAME, "vda")
    assert await targets(hypervisor) == ["vda"]
    for call in (hypervisor.attach_disk("another", "vda", disk), hypervisor.detach_disk("another", "vda")):
        with pytest.raises(DomainNotFound):
            await call


async def test_scsi_disks_come_with_their_controller_and_leave_at_once(hypervisor: Hypervisor, kind: str, blank: str) -> None:
    if kind == "test":
        pytest.skip("libvirt's test driver attaches no disk to a running domain")
    controllers = ("<controller type='scsi' index='0' model='virtio-scsi'/>",)
    await hypervisor.create(NAME, xml_for(kind))
    await hypervisor.resume(NAME)
    for target in ("sda", "sdb"):
        await hypervisor.attach_disk(NAME, target, a_disk(target, "scsi", blank).replace("<source", "<shareable/><source"), controllers)
    assert await targets(hypervisor) == ["sda", "sdb"]
    for _ in range(2):
        assert await hypervisor.detach_disk(NAME, "sda")
        assert await targets(hypervisor) == ["sdb"]


async def test_disk_grows(hypervisor: Hypervisor, kind: str, blank: str) -> None:
    await with_devices(hypervisor, kind, blank)
    if kind == "test":  # it resizes no disks
        with pytest.raises(OperationInvalid):
            await hypervisor.resize_disk(NAME, "vda", 2 << 60)
        return
    for size in (2, 2, 1):
        await hypervisor.resize_disk(NAME, "vda", size << 20)
    with pytest.raises(HypervisorError):
        await hypervisor.resize_disk(NAME, "vdz", 2 << 20)
    with pytest.raises(DomainNotFound):
        await hypervisor.resize_disk("another", "vda", 2 << 20)


async def test_link_of_a_card_goes_down_and_up(hypervisor: Hypervisor, kind: str, blank: str) -> None:
    await with_devices(hypervisor, kind, blank)
    if kind == "test":  # it does not update devices
        with pytest.raises(OperationInvalid):
            await hypervisor.set_link(NAME, CARD, up=False)
        return
    assert (await device(hypervisor, "interface")).is_up
    for up in (False, False, True, True):
        await hypervisor.set_link(NAME, CARD.upper(), up=up)
        assert (await device(hypervisor, "interface")).is_up is up
    with pytest.raises(OperationInvalid):
        await hypervisor.set_link(NAME, "52:54:00:00:00:01", up=True)


async def test_card_is_attached_once_and_only_the_guest_can_release_it(hypervisor: Hypervisor, kind: str) -> None:
    card = f"<interface type='user'><mac address='{CARD}'/><model type='virtio'/></interface>"
    await hypervisor.create(NAME, xml_for(kind))
    await hypervisor.resume(NAME)
    if kind == "test":  # it attaches no interface to a running domain
        with pytest.raises(HypervisorError):
            await hypervisor.attach_interface(NAME, CARD, card)
        assert await hypervisor.detach_interface(NAME, CARD)
        return
    for mac in (CARD, CARD.upper()):
        await hypervisor.attach_interface(NAME, mac, card)
    assert (await device(hypervisor, "interface")).mac == CARD
    assert await hypervisor.detach_interface(NAME, "52:54:00:00:00:01")
    if isinstance(hypervisor, FakeHypervisor):
        hypervisor.keeps_disks = True
    for _ in range(2):
        assert not await hypervisor.detach_interface(NAME, CARD.upper())
    assert (await device(hypervisor, "interface")).mac == CARD
    for call in (hypervisor.attach_interface("another", CARD, card), hypervisor.detach_interface("another", CARD)):
        with pytest.raises(DomainNotFound):
            await call


async def test_processors_are_added_up_to_the_maximum(hypervisor: Hypervisor, kind: str) -> None:
    await hypervisor.create(NAME, xml_for(kind).replace("<vcpu>1</vcpu>", "<vcpu current='1'>3</vcpu>"))
    await hypervisor.resume(NAME)
    for count in (1, 2, 2, 3):
        await hypervisor.add_vcpus(NAME, count)
        domain = await hypervisor.observe(NAME)
        assert domain is not None
        assert domain.vcpus == count
    with pytest.raises(HypervisorError):
        await hypervisor.add_vcpus(NAME, 4)
    with pytest.raises(OperationInvalid):
        await hypervisor.add_vcpus(NAME, 2)


async def test_memory_grows_to_its_maximum_and_shrinks_to_its_boot(hypervisor: Hypervisor, kind: str) -> None:
    device = f"<memory model='virtio-mem'><target><size unit='b'>{32 << 20}</size><node>0</node><block unit='MiB'>2</block>"
    xml = xml_for(kind).replace("</devices>", f"{device}<requested unit='b'>0</requested></target></memory></devices>")
    xml = xml.replace(
        "<memory unit='MiB'>32</memory>", f"<maxMemory slots='1' unit='MiB'>64</maxMemory><memory unit='b'>{64 << 20}</memory>", 1
    )
    cell = "<cpu><numa><cell id='0' cpus='0' unit='MiB' memory='32'/></numa></cpu>"
    if kind == "test":
        with pytest.raises(HypervisorError):  # it does not update devices
            await hypervisor.request_memory(NAME, 48 << 20)
        return
    await hypervisor.create(NAME, xml.replace("<os>", f"{cell}<os>"))
    await hypervisor.resume(NAME)
    for amount in (48, 48, 64, 32):
        await hypervisor.request_memory(NAME, amount << 20)
        domain = await hypervisor.observe(NAME)
        assert domain is not None
        assert domain.memory is not None
        assert (domain.memory.at_boot, domain.memory.requested) == (32 << 20, amount - 32 << 20)
    with pytest.raises(HypervisorError):
        await hypervisor.request_memory(NAME, 66 << 20)
    with pytest.raises(HypervisorError, match="the guest started with"):
        await hypervisor.request_memory(NAME, 30 << 20)


async def test_domain_is_described_by_its_xml(hypervisor: Hypervisor, kind: str) -> None:
    with pytest.raises(DomainNotFound):
        await hypervisor.describe(NAME)
    await hypervisor.create(NAME, xml_for(kind))
    assert ET.fromstring(await hypervisor.describe(NAME)).findtext("name") == NAME


async def test_domain_without_room_keeps_its_memory(hypervisor: Hypervisor, kind: str) -> None:
    await hypervisor.create(NAME, xml_for(kind))
    domain = await hypervisor.observe(NAME)
    assert domain is not None
    assert domain.memory is None
    with pytest.raises(HypervisorError):
        await hypervisor.request_memory(NAME, 48 << 20)


async def test_calls_may_overlap(hypervisor: Hypervisor, kind: str) -> None:
    await hypervisor.create(NAME, xml_for(kind))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(hypervisor.observe(NAME)) for _ in range(20)]
    assert len({task.result() for task in tasks}) == 1


@pytest.mark.parametrize("made", [FakeHypervisor(connected=False), LibvirtHypervisor("test:///default")], ids=["fake", "libvirt"])
async def test_without_a_connection_everything_is_unavailable(made: Hypervisor) -> None:
    for call in (made.observe, made.resume, made.suspend, made.destroy, made.reset, made.abort_job, made.press_power_button):
        with pytest.raises(Unavailable):
            await call(NAME)


@pytest.mark.host
async def test_a_libvirtd_that_comes_late_is_found() -> None:
    directory = tempfile.mkdtemp(prefix="hv")
    hypervisor = LibvirtHypervisor(f"qemu+unix:///session?socket={directory}/none")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(hypervisor.run())
        await asyncio.sleep(0.3)
        with pytest.raises(Unavailable):
            await within(1, hypervisor.observe(NAME))
        running.cancel()
    shutil.rmtree(directory)
