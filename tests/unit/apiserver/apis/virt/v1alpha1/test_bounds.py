from __future__ import annotations

import copy
from typing import Any

import pytest

from apiserver.apis.meta import decoding
from apiserver.apis.meta.validation import Path
from apiserver.apis.virt.v1alpha1 import defaults, types, validation
from apiserver.apis.virt.v1alpha1.allowed import NOTHING, Allowed
from apiserver.apis.virt.v1alpha1.domain import cpu_names, rules


def errors(domain: dict[str, Any], allowed: Allowed = NOTHING) -> list[str]:
    obj: dict[str, Any] = {"kind": "VirtualMachine", "metadata": {"name": "vm1", "namespace": "acc"}, "spec": {"domain": domain}}
    _, found = decoding.read(types.VirtualMachine, copy.deepcopy(obj))
    assert not list(found)
    defaults.default_virtual_machine(obj)
    return [str(each) for each in validation.validate_virtual_machine(obj, allowed)]


def disk(**fields: Any) -> dict[str, Any]:
    return {"type": "Image", "source": {"reference": "a"}, **fields}


def created(size: str, **fields: Any) -> dict[str, Any]:
    of_source = {key: fields.pop(key) for key in ("ephemeral", "sizeLimit") if key in fields}
    return disk(type="PersistentVolumeClaim", source={"name": "a", "create": {"size": size}, **of_source}, **fields)


def imported(url: str = "https://h/i", **fields: Any) -> dict[str, Any]:
    """Return a PVC disk with an image imported over HTTP.

    ``fields`` go into ``source.import``, ``http=`` into ``source.import.http``, ``source=`` into ``source``.
    """
    http, source = fields.pop("http", {}), fields.pop("source", {})
    return disk(type="PersistentVolumeClaim", source={"name": "a", "import": {"http": {"url": url, **http}, **fields}, **source})


def stored(**fields: Any) -> dict[str, Any]:
    s3 = {"endpoint": "https://h", "bucket": "abc", "key": "k", **fields}
    return disk(type="PersistentVolumeClaim", source={"name": "a", "import": {"s3": s3}})


def contained(reference: str, **fields: Any) -> dict[str, Any]:
    return disk(type="PersistentVolumeClaim", source={"name": "a", "import": {"registry": {"reference": reference, **fields}}})


IMPORT = "devices.disks[0].source.import"
SHA256 = "0123456789abcdefABCDEF" + "0" * 42


def shareable(**fields: Any) -> dict[str, Any]:
    return {"type": "PersistentVolumeClaim", "source": {"name": "a"}, "shareable": True, **fields}


def driver(*, device: str = "disk", read_only: bool = False, **said: str) -> dict[str, Any]:
    return disk(device=device, readOnly=read_only or device == "cdrom", driver=said)


def blocks(*, device: str = "disk", target: dict[str, Any] | None = None, **sizes: int) -> dict[str, Any]:
    return disk(device=device, target=target or {"bus": "scsi"}, blockSize=sizes)


def limits(**said: Any) -> dict[str, Any]:
    return disk(ioTune=said)


def disks(*of: dict[str, Any]) -> dict[str, Any]:
    return {"devices": {"disks": list(of)}}


def kernel(arguments: str = "", path: str = "/vmlinuz", image: str = "a") -> dict[str, Any]:
    return {"firmware": {"kernelBoot": {"container": {"image": image, "kernelPath": path}, "kernelArgs": arguments}}}


def shared(*of: dict[str, Any], **domain: Any) -> dict[str, Any]:
    unsaid = ({"name": f"f{at}", "type": "PersistentVolumeClaim", "source": {"name": f"c{at}"}} for at in range(len(of)))
    filesystems = [base | each for base, each in zip(unsaid, of, strict=True)]
    return {**domain, "devices": {**domain.get("devices", {}), "filesystems": filesystems}}


def interfaces(count: int) -> dict[str, Any]:
    return {"devices": {"interfaces": [{"name": f"i{each}"} for each in range(count)]}}


def host_devices(*resources: str) -> dict[str, Any]:
    return {"devices": {"hostDevices": [{"name": f"d{index}", "deviceName": each} for index, each in enumerate(resources)]}}


def device(name: str, **fields: Any) -> dict[str, Any]:
    return {"devices": {name: fields}}


def redirected(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"devices": {"redirectedDevices": {"filter": list(rules)}}}


UEFI: dict[str, Any] = {"firmware": {"bootloader": {"efi": {}}}}


def without(name: str) -> dict[str, Any]:
    return {"features": {name: {"hidden": False} if name == "kvm" else {"enabled": False}}}


SYNTHETIC: dict[str, Any] = {"vpindex": {}, "synic": {}, "synictimer": {}}


def hyperv(of: dict[str, Any], timer: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"features": {"hyperv": of}, **({} if timer is None else {"clock": {"timer": {"hyperv": timer}}})}


def retries(count: int) -> dict[str, Any]:
    return hyperv({"spinlocks": {"spinlocks": count}})


def vendor(name: str) -> dict[str, Any]:
    return hyperv({"vendorid": {"vendorid": name}})


def offset(seconds: int) -> dict[str, Any]:
    return {"clock": {"utc": {"offsetSeconds": seconds}}}


def memory(most: str, pages: str = "", guest: str = "512Mi") -> dict[str, Any]:
    return {"memory": {"guest": guest, "maxGuest": most, **({"hugepages": {"pageSize": pages}} if pages else {})}}


def numa(*cells: tuple[str, str], cpu: dict[str, Any] | None = None, **of: Any) -> dict[str, Any]:
    nodes = [{"cpus": cpus, "memory": memory} for cpus, memory in cells]
    return {"cpu": {**(cpu or {"cores": 2}), "numa": {"cells": nodes}}, **of}


def small_nodes(count: int) -> dict[str, Any]:
    return numa(*((str(each), "16Mi") for each in range(count)), cpu={"cores": count}, memory={"guest": f"{16 * count}Mi"})


def passed_through(**cpu: Any) -> dict[str, Any]:
    return {"cpu": {"dedicatedCpuPlacement": True, "numa": {"guestMappingPassthrough": {}}, **cpu}}


SOME_FEATURES = sorted(cpu_names.FEATURES)


def features(*names: str) -> dict[str, Any]:
    return {"cpu": {"features": [{"name": each} for each in names]}}


def requests(limits: dict[str, Any] | None = None, **of: Any) -> dict[str, Any]:
    return {"resources": {"requests": of, "limits": limits or {}}}


def dedicated(**of: Any) -> dict[str, Any]:
    return {"cpu": {"dedicatedCpuPlacement": True}, **requests(**of)}


@pytest.mark.parametrize(
    ("taken", "refused", "field"),
    [
        ({"cpu": {"cores": 255}}, {"cpu": {"cores": 256}}, "cpu.cores"),
        ({"cpu": {"cores": 127, "threads": 2}}, {"cpu": {"cores": 128, "threads": 2}}, "cpu"),
        ({"cpu": {"sockets": 63, "cores": 3}}, {"cpu": {"sockets": 65, "cores": 3}}, "cpu"),
        ({"cpu": {"sockets": 2, "maxSockets": 2}}, {"cpu": {"sockets": 2, "maxSockets": 1}}, "cpu.maxSockets"),
        ({"cpu": {"cores": 2, "maxSockets": 127}}, {"cpu": {"cores": 2, "maxSockets": 128}}, "cpu.maxSockets"),
        ({"cpu": {"model": "EPYC-Genoa"}}, {"cpu": {"model": "EPYC-Genua"}}, "cpu.model"),
        (features("avx2"), features("avx-2"), "cpu.features[0].name"),
        (features("avx2", "avx"), features("avx2", "avx2"), "cpu.features[1].name"),
        (features(*SOME_FEATURES[:128]), features(*SOME_FEATURES[:129]), "cpu.features"),
        (
            {"cpu": {"dedicatedCpuPlacement": True, "isolateEmulatorThread": True}},
            {"cpu": {"isolateEmulatorThread": True}},
            "cpu.isolateEmulatorThread",
        ),
        ({"cpu": {"dedicatedCpuPlacement": True}}, {"cpu": {"dedicatedCpuPlacement": True, "maxSockets": 2}}, "cpu.maxSockets"),
        (small_nodes(64), small_nodes(65), "cpu.numa.cells"),
        (numa(("0-1", "512Mi")), {**numa(("0-1", "512Mi")), **without("acpi")}, "cpu.numa.cells"),
        (numa(("0,1", "512Mi")), numa(("0,-1", "512Mi")), "cpu.numa.cells[0].cpus"),
        (numa(("0-1", "512Mi")), numa(("0-1,1-0", "512Mi")), "cpu.numa.cells[0].cpus"),
        (numa(("0-1", "512Mi")), numa(("0-2", "512Mi")), "cpu.numa.cells[0].cpus"),
        (numa(("0-1", "512Mi")), numa(("1", "512Mi")), "cpu.numa.cells"),
        (
            numa(("0-3", "512Mi"), cpu={"cores": 2, "maxSockets": 2}),
            numa(("0-1", "512Mi"), cpu={"cores": 2, "maxSockets": 2}),
            "cpu.numa.cells",
        ),
        (numa(("0", "256Mi"), ("1", "256Mi")), numa(("0", "256Mi"), ("0-1", "256Mi")), "cpu.numa.cells[1].cpus"),
        (numa(("0", "256Mi"), ("1", "256Mi")), numa(("0", "256Mi"), ("1", "257Mi")), "cpu.numa.cells"),
        (numa(("0", "496Mi"), ("1", "16384Ki")), numa(("0", "497Mi"), ("1", "15Mi")), "cpu.numa.cells[1].memory"),
        (passed_through(), passed_through(dedicatedCpuPlacement=False), "cpu.numa.guestMappingPassthrough"),
        (passed_through(), {**passed_through(), **without("acpi")}, "cpu.numa.guestMappingPassthrough"),
        (
            {**passed_through(), "memory": {"guest": "1Gi"}},
            {**passed_through(), "memory": {"guest": "1Gi", "hugepages": {"pageSize": "1Gi"}}},
            "cpu.numa.guestMappingPassthrough",
        ),
        (
            passed_through(),
            {"cpu": {**passed_through()["cpu"], "numa": {"guestMappingPassthrough": {}, "cells": [{"cpus": "0", "memory": "512Mi"}]}}},
            "cpu.numa.guestMappingPassthrough",
        ),
        (requests(cpu="1m"), requests(cpu="0.0001"), "resources.requests.cpu"),
        (requests(cpu="1024"), requests(cpu="1024001m"), "resources.requests.cpu"),
        (requests(memory="1Mi"), requests(memory="1023Ki"), "resources.requests.memory"),
        (requests(memory="16Ti"), requests(memory="17Ti"), "resources.requests.memory"),
        (requests({"cpu": "2"}, cpu="2000m"), requests({"cpu": "2"}, cpu="2001m"), "resources.requests.cpu"),
        (requests({"memory": "512Mi"}), requests({"memory": "511Mi"}), "resources.limits.memory"),
        (requests({"memory": "1Gi"}, memory="1024Mi"), requests({"memory": "1Gi"}, memory="1025Mi"), "resources.requests.memory"),
        *(
            (hyperv({needed: {}, name: {}}), hyperv({needed: {"enabled": False}, name: {}}), f"features.hyperv.{name}")
            for name, needed in (("synic", "vpindex"), ("tlbflush", "vpindex"), ("ipi", "vpindex"), ("evmcs", "vapic"))
        ),
        (without("acpi"), {**UEFI, **without("acpi")}, "features.acpi"),
        ({**UEFI, **without("kvm")}, {**UEFI, **without("smm")}, "features.smm"),
        (hyperv(SYNTHETIC, {}), hyperv({**SYNTHETIC, "synic": {"enabled": False}}, {}), "features.hyperv.synictimer"),
        (hyperv(SYNTHETIC, {"present": True}), hyperv(SYNTHETIC, {"present": False}), "features.hyperv.synictimer"),
        (hyperv(SYNTHETIC, {}), hyperv(SYNTHETIC), "features.hyperv.synictimer"),
        (hyperv({"ipi": {"enabled": False}}), hyperv({"ipi": {"enabled": True}}), "features.hyperv.ipi"),
        (retries(4095), retries(4094), "features.hyperv.spinlocks.spinlocks"),
        (retries(2**31 - 1), retries(-(2**31)), "features.hyperv.spinlocks.spinlocks"),
        (vendor("a" * 12), vendor("a" * 13), "features.hyperv.vendorid.vendorid"),
        (vendor("A b.c"), vendor("a,b"), "features.hyperv.vendorid.vendorid"),
        (vendor("a"), vendor(""), "features.hyperv.vendorid.vendorid"),
        (offset(86400), offset(86401), "clock.utc.offsetSeconds"),
        (offset(-86400), offset(-86401), "clock.utc.offsetSeconds"),
        ({"clock": {"timezone": "America/Port-au-Prince"}}, {"clock": {"timezone": "../etc/passwd"}}, "clock.timezone"),
        ({"clock": {"timezone": "Etc/GMT+8"}}, {"clock": {"timezone": "Etc//GMT"}}, "clock.timezone"),
        ({"clock": {"timezone": "Europe/Berlin"}}, {"clock": {"timezone": "Europe/Berln"}}, "clock.timezone"),
        ({"clock": {"timezone": "UTC"}}, {"clock": {"timezone": "Europe"}}, "clock.timezone"),
        ({"clock": {"timezone": "UTC"}}, {"clock": {"timezone": "UTC", "utc": {}}}, "clock.utc"),
        (memory("512Mi"), memory("511Mi"), "memory.maxGuest"),
        (memory("512Gi"), memory("513Gi"), "memory.maxGuest"),
        (memory("514Mi", "2Mi"), memory("515Mi", "2Mi"), "memory.maxGuest"),
        (memory("2Gi", "1Gi", guest="1Gi"), memory("2Gi", "1Gi", guest="1536Mi"), "memory.guest"),
        (memory("1Gi", "2Mi"), {**memory("1Gi", "2Mi"), **requests(memory="512Mi")}, "resources.requests.memory"),
        ({"ioThreads": {"count": 16}}, {"ioThreads": {"count": 17}}, "ioThreads.count"),
        ({"ioThreads": {"count": 0}}, {"ioThreads": {"count": -1}}, "ioThreads.count"),
        (
            disks(disk(dedicatedIOThread=True)),
            disks(disk(dedicatedIOThread=True, target={"bus": "scsi"})),
            "devices.disks[0].dedicatedIOThread",
        ),
        (dedicated(memory="512Mi"), dedicated(memory="511Mi"), "resources.requests.memory"),
        (dedicated(), dedicated(cpu="1"), "resources.requests.cpu"),
        ({"memory": {"guest": "16Mi"}}, {"memory": {"guest": "16777215"}}, "memory.guest"),
        ({"memory": {"guest": "16Ti"}}, {"memory": {"guest": "17592186044417"}}, "memory.guest"),
        ({"memory": {"guest": "1073741824.0"}}, {"memory": {"guest": "1073741824.5"}}, "memory.guest"),
        (requests(memory="1.5Gi"), requests(memory="1073741824500m"), "resources.requests.memory"),
        (memory("512Mi"), memory("1073741824.5"), "memory.maxGuest"),
        (kernel("a" * 2048), kernel("a" * 2049), "firmware.kernelBoot.kernelArgs"),
        (kernel("a" * 2048), kernel("ä" * 1025), "firmware.kernelBoot.kernelArgs"),
        (kernel(path="/" + "a" * 1023), kernel(path="/" + "a" * 1024), "firmware.kernelBoot.container.kernelPath"),
        (kernel(image="a" * 511), kernel(image="a" * 512), "firmware.kernelBoot.container.image"),
        (disks(disk(serial="a" * 20)), disks(disk(serial="a" * 21)), "devices.disks[0].serial"),
        (
            disks(disk(serial="a" * 20, target={"bus": "sata"})),
            disks(disk(serial="a" * 21, target={"bus": "sata"})),
            "devices.disks[0].serial",
        ),
        (
            disks(disk(serial="a" * 36, target={"bus": "scsi"})),
            disks(disk(serial="a" * 37, target={"bus": "scsi"})),
            "devices.disks[0].serial",
        ),
        (
            disks(disk(serial="a" * 36, target={"bus": "usb"})),
            disks(disk(serial="a" * 37, target={"bus": "usb"})),
            "devices.disks[0].serial",
        ),
        (disks(disk(name="a" * 50)), disks(disk(name="a" * 51)), "devices.disks[0].name"),
        (shared(*({} for _ in range(8))), shared(*({} for _ in range(9))), "devices.filesystems"),
        (shared({"name": "a" * 36}), shared({"name": "a" * 37}), "devices.filesystems[0].name"),
        (shared({"name": "a"}), shared({"name": "a b"}), "devices.filesystems[0].name"),
        (shared({"name": "a"}), shared({"name": ""}), "devices.filesystems[0].name"),
        (shared({"name": "a"}, {"name": "b"}), shared({"name": "a"}, {"name": "a"}), "devices.filesystems[1].name"),
        (shared({"source": {"name": "A"}}), shared({"source": {"name": "a/b"}}), "devices.filesystems[0].source.name"),
        (shared({"source": {"name": "a"}}), shared({"source": {"name": ""}}), "devices.filesystems[0].source.name"),
        (
            shared({"type": "Secret", "source": {"name": "a"}}),
            shared({"type": "Secret", "source": {"name": "A"}}),
            "devices.filesystems[0].source.name",
        ),
        (
            shared({"type": "ConfigMap", "readOnly": True}),
            shared({"type": "ConfigMap", "readOnly": False}),
            "devices.filesystems[0].readOnly",
        ),
        (
            shared({}, {"type": "Secret", "source": {"name": "c0"}}),
            shared({}, {"source": {"name": "C0"}}),
            "devices.filesystems[1].source.name",
        ),
        (
            shared({}, firmware={"persistentState": {"claimName": "State"}}, devices={"tpm": {"persistent": True}}),
            shared(
                {"source": {"name": "state"}},
                firmware={"persistentState": {"claimName": "State"}},
                devices={"tpm": {"persistent": True}},
            ),
            "devices.filesystems[0].source.name",
        ),
        (
            shared({}, **disks(disk(type="PersistentVolumeClaim", source={"name": "a"}))),
            shared({}, **disks(disk(type="PersistentVolumeClaim", source={"name": "C0"}))),
            "devices.filesystems[0].source.name",
        ),
        (disks(disk(bootOrder=26)), disks(disk(bootOrder=27)), "devices.disks[0].bootOrder"),
        (disks(disk(bootOrder=1)), disks(disk(bootOrder=0)), "devices.disks[0].bootOrder"),
        (disks(disk(bootOrder=1), disk(bootOrder=2)), disks(disk(bootOrder=1), disk(bootOrder=1)), "devices.disks[1].bootOrder"),
        (
            disks(disk(source={"reference": "a", "sizeLimit": "1Mi"})),
            disks(disk(source={"reference": "a", "sizeLimit": "1048575"})),
            "devices.disks[0].source.sizeLimit",
        ),
        (
            disks(disk(source={"reference": "a", "sizeLimit": "64Ti"})),
            disks(disk(source={"reference": "a", "sizeLimit": "70368744177665"})),
            "devices.disks[0].source.sizeLimit",
        ),
        (
            disks(disk(wwn="0123456789abcdeF", target={"bus": "scsi"})),
            disks(disk(wwn="0123456789abcde", target={"bus": "scsi"})),
            "devices.disks[0].wwn",
        ),
        (disks(disk(wwn="0123456789abcdef", target={"bus": "scsi"})), disks(disk(wwn="0123456789abcdef")), "devices.disks[0].wwn"),
        (
            disks(*(disk(wwn=f"0123456789abcde{each}", target={"bus": "scsi"}) for each in "ef")),
            disks(*(disk(wwn=f"0123456789abcde{each}", target={"bus": "scsi"}) for each in "fF")),
            "devices.disks[1].wwn",
        ),
        (disks(driver(io="native", cache="directsync")), disks(driver(io="native", cache="writeback")), "devices.disks[0].driver.io"),
        (disks(driver(io="threads", cache="unsafe")), disks(driver(io="native", cache="unsafe")), "devices.disks[0].driver.io"),
        (
            disks(driver(discard="ignore", detectZeroes="on")),
            disks(driver(discard="ignore", detectZeroes="unmap")),
            "devices.disks[0].driver.detectZeroes",
        ),
        (disks(driver(discard="ignore")), disks(driver(read_only=True, discard="ignore")), "devices.disks[0].driver.discard"),
        (disks(driver(detectZeroes="on")), disks(driver(read_only=True, detectZeroes="on")), "devices.disks[0].driver.detectZeroes"),
        (disks(driver(cache="none")), disks(driver(cache="none", device="cdrom")), "devices.disks[0].driver"),
        (disks(blocks(logical=512)), disks(blocks(logical=256)), "devices.disks[0].blockSize.logical"),
        (disks(blocks(logical=2097152)), disks(blocks(logical=4194304)), "devices.disks[0].blockSize.logical"),
        (disks(blocks(logical=4096)), disks(blocks(logical=4097)), "devices.disks[0].blockSize.logical"),
        (disks(blocks(physical=4096)), disks(blocks(physical=4095)), "devices.disks[0].blockSize.physical"),
        (disks(blocks(logical=1024, physical=1024)), disks(blocks(logical=1024, physical=512)), "devices.disks[0].blockSize.physical"),
        (
            disks(blocks(physical=4096, target={"bus": "sata"})),
            disks(blocks(logical=4096, target={"bus": "sata"})),
            "devices.disks[0].blockSize.logical",
        ),
        (disks(blocks(logical=512)), disks(blocks(logical=512, device="cdrom")), "devices.disks[0].blockSize"),
        (disks(limits(totalBytesSec="1")), disks(limits(totalBytesSec="0")), "devices.disks[0].ioTune.totalBytesSec"),
        (disks(limits(readBytesSec="1000T")), disks(limits(readBytesSec="1000000000000001")), "devices.disks[0].ioTune.readBytesSec"),
        (disks(limits(writeIopsSec=1)), disks(limits(writeIopsSec=0)), "devices.disks[0].ioTune.writeIopsSec"),
        (disks(limits(writeIopsSec=10**15)), disks(limits(writeIopsSec=10**15 + 1)), "devices.disks[0].ioTune.writeIopsSec"),
        (
            disks(limits(totalBytesSec="1", readIopsSec=1)),
            disks(limits(totalBytesSec="1", readBytesSec="1")),
            "devices.disks[0].ioTune.readBytesSec",
        ),
        (
            disks(limits(totalIopsSec=1, writeBytesSec="1")),
            disks(limits(totalIopsSec=1, writeIopsSec=1)),
            "devices.disks[0].ioTune.writeIopsSec",
        ),
        (
            disks(limits(readIopsSec=5, readIopsSecMax=5)),
            disks(limits(readIopsSec=5, readIopsSecMax=4)),
            "devices.disks[0].ioTune.readIopsSecMax",
        ),
        (
            disks(limits(writeBytesSec="1Ki", writeBytesSecMax="1024")),
            disks(limits(readBytesSec="1Ki", writeBytesSecMax="1024")),
            "devices.disks[0].ioTune.writeBytesSecMax",
        ),
        (
            disks(disk(type="EmptyDisk", source={"size": "1Mi"})),
            disks(disk(type="EmptyDisk", source={"size": "1048575"})),
            "devices.disks[0].source.size",
        ),
        (disks(disk(type="EmptyDisk", source={"size": "64Ti"})), disks(disk(type="EmptyDisk", source={})), "devices.disks[0].source.size"),
        (
            disks(disk(type="EmptyDisk", source={"size": "1Gi"})),
            disks(disk(source={"reference": "a", "size": "1Gi"})),
            "devices.disks[0].source.size",
        ),
        (
            disks(disk(type="EmptyDisk", source={"size": "1Gi"})),
            disks(disk(type="EmptyDisk", source={"size": "1Gi"}, device="cdrom")),
            "devices.disks[0].source",
        ),
        (
            disks(disk(type="EmptyDisk", source={"size": "1Gi"})),
            disks(disk(type="EmptyDisk", source={"size": "1Gi"}, readOnly=True)),
            "devices.disks[0].source",
        ),
        (
            disks(disk(type="PersistentVolumeClaim", source={"name": "a", "ephemeral": True, "sizeLimit": "1Mi"})),
            disks(disk(type="PersistentVolumeClaim", source={"name": "a", "sizeLimit": "1Mi"})),
            "devices.disks[0].source.sizeLimit",
        ),
        (
            disks(disk(type="PersistentVolumeClaim", source={"name": "a", "ephemeral": True, "sizeLimit": "64Ti"})),
            disks(disk(type="PersistentVolumeClaim", source={"name": "a", "ephemeral": True, "sizeLimit": "70368744177665"})),
            "devices.disks[0].source.sizeLimit",
        ),
        (disks(created("1Mi")), disks(created("1048575")), "devices.disks[0].source.create.size"),
        (disks(created("64Ti")), disks(created("70368744177665")), "devices.disks[0].source.create.size"),
        (disks(created("1Gi")), disks(created("1Gi", readOnly=True)), "devices.disks[0].source.create"),
        (disks(created("1Gi")), disks(created("1Gi", device="cdrom")), "devices.disks[0].source.create"),
        (disks(created("1Gi")), disks(created("1Gi", ephemeral=True)), "devices.disks[0].source.create"),
        (disks(created("1Gi")), disks(created("1Gi", sizeLimit="1Gi")), "devices.disks[0].source.sizeLimit"),
        (disks(created("1Gi")), disks(disk(source={"reference": "a", "create": {"size": "1Gi"}})), "devices.disks[0].source.create"),
        (disks(imported()), disks(imported("ftp://h/i")), f"{IMPORT}.http.url"),
        (disks(imported("http://h")), disks(imported("https://")), f"{IMPORT}.http.url"),
        (disks(imported("https://[fd00::1]:8443/i")), disks(imported("https://[fd00::1/i")), f"{IMPORT}.http.url"),
        (disks(imported("https://h:65535/i")), disks(imported("https://h:65536/i")), f"{IMPORT}.http.url"),
        (disks(imported("https://h/@")), disks(imported("https://user:password@h/i")), f"{IMPORT}.http.url"),
        (disks(imported("https://h/?a=%20")), disks(imported("https://h/a b")), f"{IMPORT}.http.url"),
        (disks(imported("https://h/" + "i" * 2038)), disks(imported("https://h/" + "i" * 2039)), f"{IMPORT}.http.url"),
        (disks(imported(checksum=f"sha256:{SHA256}")), disks(imported(checksum=f"sha256:{SHA256}0")), f"{IMPORT}.checksum"),
        (disks(imported(checksum=f"sha512:{SHA256 * 2}")), disks(imported(checksum=f"sha512:{SHA256}")), f"{IMPORT}.checksum"),
        (disks(imported()), disks(imported(checksum=SHA256)), f"{IMPORT}.checksum"),
        (disks(imported()), disks(imported(checksum="md5:")), f"{IMPORT}.checksum"),
        (disks(imported(size="1Mi")), disks(imported(size="1048575")), f"{IMPORT}.size"),
        (disks(imported(size="64Ti")), disks(imported(size="65Ti")), f"{IMPORT}.size"),
        (
            disks(imported(http={"secretRef": {"name": "s"}})),
            disks(imported(http={"secretRef": {"name": "S"}})),
            f"{IMPORT}.http.secretRef.name",
        ),
        (
            disks(imported(http={"caConfigMapRef": {"name": "c"}})),
            disks(imported("http://h/i", http={"caConfigMapRef": {"name": "c"}})),
            f"{IMPORT}.http.caConfigMapRef",
        ),
        (
            disks(imported(http={"caConfigMapRef": {"name": "c", "key": "k"}})),
            disks(imported(http={"caConfigMapRef": {"name": "c", "key": "../k"}})),
            f"{IMPORT}.http.caConfigMapRef.key",
        ),
        (disks(imported()), disks(disk(type="PersistentVolumeClaim", source={"name": "a", "import": {}})), f"{IMPORT}.http"),
        (disks(contained("r.example/a:1")), disks(contained("")), f"{IMPORT}.registry.reference"),
        (disks(contained("r.example:5000/a/b@sha256:0")), disks(contained("r.example/a b")), f"{IMPORT}.registry.reference"),
        (disks(contained("a")), disks(contained("a", secretRef={"name": "S"})), f"{IMPORT}.registry.secretRef.name"),
        (disks(stored(endpoint="http://h:9000/")), disks(stored(endpoint="https://h/?x")), f"{IMPORT}.s3.endpoint"),
        (disks(stored(endpoint="http://h/store")), disks(stored(endpoint="h")), f"{IMPORT}.s3.endpoint"),
        (disks(stored(bucket="a.b")), disks(stored(bucket="ab")), f"{IMPORT}.s3.bucket"),
        (disks(stored(bucket="a" * 63)), disks(stored(bucket="a" * 64)), f"{IMPORT}.s3.bucket"),
        (disks(stored(bucket="a-1")), disks(stored(bucket="a/b")), f"{IMPORT}.s3.bucket"),
        (disks(stored(key="ä/ b?c")), disks(stored(key="")), f"{IMPORT}.s3.key"),
        (disks(stored(key="k" * 1024)), disks(stored(key="k" * 1025)), f"{IMPORT}.s3.key"),
        (disks(stored(key="a..b")), disks(stored(key="a/../b")), f"{IMPORT}.s3.key"),
        (disks(stored()), disks(stored(key="a\nb")), f"{IMPORT}.s3.key"),
        (disks(stored(region="eu-1")), disks(stored(region="eu/1")), f"{IMPORT}.s3.region"),
        (disks(stored(secretRef={"name": "s"})), disks(stored(secretRef={"name": ""})), f"{IMPORT}.s3.secretRef.name"),
        (disks(stored()), disks(stored(endpoint="http://h", caConfigMapRef={"name": "c"})), f"{IMPORT}.s3.caConfigMapRef"),
        (
            disks(stored()),
            disks(imported(s3={"endpoint": "https://h", "bucket": "abc", "key": "k"})),
            f"{IMPORT}.s3",
        ),
        (disks(imported()), disks(imported(source={"ephemeral": True})), "devices.disks[0].source.ephemeral"),
        (disks(imported()), disks(imported(source={"create": {"size": "1Gi"}})), "devices.disks[0].source.create"),
        (disks(imported()), disks(disk(type="EmptyDisk", source={"size": "1Gi", "import": {"http": {"url": "http://h/"}}})), IMPORT),
        (disks(shareable()), disks(shareable(device="cdrom")), "devices.disks[0].shareable"),
        (disks(shareable(readOnly=True)), disks(disk(shareable=True)), "devices.disks[0].shareable"),
        (disks(shareable()), disks(shareable(source={"name": "a", "ephemeral": True})), "devices.disks[0].shareable"),
        (disks(shareable(driver={"cache": "directsync"})), disks(shareable(driver={"cache": "unsafe"})), "devices.disks[0].driver.cache"),
        (disks(*[disk()] * 26), disks(*[disk()] * 27), "devices.disks"),
        ({"devices": {"consoles": [{"type": "pty"}] * 4}}, {"devices": {"consoles": [{"type": "pty"}] * 5}}, "devices.consoles"),
        (
            {"devices": {"graphics": [{"type": "vnc"}, {"type": "spice"}]}},
            {"devices": {"graphics": [{"type": "spice"}, {"type": "spice"}]}},
            "devices.graphics[1].type",
        ),
        (interfaces(1), interfaces(2), "devices.interfaces[1].network"),
        (device("video", vram="4Mi"), device("video", vram="2Mi"), "devices.video.vram"),
        (device("video", vram="256Mi"), device("video", vram="512Mi"), "devices.video.vram"),
        (device("video", vram="8Mi"), device("video", vram="9Mi"), "devices.video.vram"),
        (device("video", type="bochs", vram="8Mi"), device("video", type="virtio", vram="8Mi"), "devices.video.vram"),
        (device("video", type="virtio", heads=4), device("video", type="virtio", heads=5), "devices.video.heads"),
        (device("video", type="virtio", heads=1), device("video", type="virtio", heads=0), "devices.video.heads"),
        (device("video", type="virtio", heads=1), device("video", type="vga", heads=1), "devices.video.heads"),
        ({"devices": {"video": {"type": "none"}, "graphics": []}}, device("video", type="none"), "devices.video.type"),
        ({"devices": {"inputs": [{"type": "mouse"}] * 8}}, {"devices": {"inputs": [{"type": "mouse"}] * 9}}, "devices.inputs"),
        (device("rng", rate={"bytes": 1}), device("rng", rate={"bytes": 0}), "devices.rng.rate.bytes"),
        (device("rng", rate={"bytes": 1 << 30}), device("rng", rate={"bytes": (1 << 30) + 1}), "devices.rng.rate.bytes"),
        (device("rng", rate={"bytes": 1, "period": 1}), device("rng", rate={"bytes": 1, "period": 0}), "devices.rng.rate.period"),
        (
            device("rng", rate={"bytes": 1, "period": 86_400_000}),
            device("rng", rate={"bytes": 1, "period": 86_400_001}),
            "devices.rng.rate.period",
        ),
        (device("redirectedDevices", slots=1), device("redirectedDevices", slots=0), "devices.redirectedDevices.slots"),
        (device("redirectedDevices", slots=4), device("redirectedDevices", slots=5), "devices.redirectedDevices.slots"),
        (redirected(*[{}] * 16), redirected(*[{}] * 17), "devices.redirectedDevices.filter"),
        (redirected({"class": "0x0B"}), redirected({"class": "0x0Bx"}), "devices.redirectedDevices.filter[0].class"),
        (redirected({}, {"vendor": "0x04d8"}), redirected({}, {"vendor": "1240"}), "devices.redirectedDevices.filter[1].vendor"),
        (redirected({"product": "0x0000"}), redirected({"product": "0x0000\n"}), "devices.redirectedDevices.filter[0].product"),
        (host_devices(*["vendor.example/card"] * 16), host_devices(*["vendor.example/card"] * 17), "devices.hostDevices"),
        (host_devices("a.b/" + "c" * 63), host_devices("a.b/" + "c" * 64), "devices.hostDevices[0].deviceName"),
        (host_devices("vendor.example/card"), host_devices("card"), "devices.hostDevices[0].deviceName"),
        (host_devices("notkubevirt.io/card"), host_devices("devices.kubevirt.io/kvm"), "devices.hostDevices[0].deviceName"),
        (host_devices("a.b/c"), host_devices("kubernetes.io/c"), "devices.hostDevices[0].deviceName"),
        (host_devices("a.b/c"), host_devices("requests.b/c"), "devices.hostDevices[0].deviceName"),
        (host_devices("a.b/c"), host_devices("a.b/c\n"), "devices.hostDevices[0].deviceName"),
        (
            {"devices": {"gpus": [{"name": "a", "deviceName": "a.b/c"}], "hostDevices": [{"name": "b", "deviceName": "a.b/c"}]}},
            {"devices": {"gpus": [{"name": "a", "deviceName": "a.b/c"}], "hostDevices": [{"name": "a", "deviceName": "a.b/c"}]}},
            "devices.hostDevices[0].name",
        ),
        (
            {"devices": {"gpus": [{"name": "a", "deviceName": "a.b/c"}]}},
            {"devices": {"gpus": [{"name": "a", "deviceName": ""}]}},
            "devices.gpus[0].deviceName",
        ),
        (device("rng", model="none"), device("rng", model="none", rate={"bytes": 1}), "devices.rng.rate"),
    ],
)
def test_a_bound_is_where_it_is_documented(taken: dict[str, Any], refused: dict[str, Any], field: str) -> None:
    assert errors(taken) == []
    (found,) = errors(refused)
    assert found.startswith(f"spec.domain.{field}: ")


def test_there_are_no_more_interfaces_than_eight() -> None:
    assert not [each for each in errors(interfaces(8)) if "Too many" in each]
    assert "spec.domain.devices.interfaces: Too many: 9: must have at most 8 items" in errors(interfaces(9))


def test_every_node_consists_of_whole_huge_pages() -> None:
    assert errors(numa(("0", "254Mi"), ("1", "258Mi"), **memory("512Mi", "2Mi"))) == []
    found = errors(numa(("0", "255Mi"), ("1", "257Mi"), **memory("512Mi", "2Mi")))
    assert [each.partition(": ")[0] for each in found] == [f"spec.domain.cpu.numa.cells[{index}].memory" for index in range(2)]


def test_all_that_is_wrong_with_nodes_is_told_at_once() -> None:
    found = errors(numa(("x", "1Mi"), ("1,7", "256Mi"), ("1", "1.5Mi")))
    assert [each.partition(": ")[0].removeprefix("spec.domain.cpu.numa.cells") for each in found] == [
        "[0].cpus",
        "[1].cpus",
        "[2].cpus",
        "[0].memory",
        "[2].memory",
        "",
    ]


def test_an_address_is_the_same_in_capitals() -> None:
    cards: list[dict[str, Any]] = [{"mac": "52:54:00:00:00:0a"}, {"mac": None}, {"mac": "52:54:00:00:00:0A"}, {}]
    (error,) = rules.validate_unique(cards, "mac", Path("interfaces"))
    assert error.path == "interfaces[2].mac"
