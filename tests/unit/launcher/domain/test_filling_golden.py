"""The three ways to describe a VM, compared with each other, and effects of mutated golden documents on their readers."""

from __future__ import annotations

import copy
import dataclasses
import random
import re
from collections.abc import Mapping
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest

from apiserver.apis.meta.validation import FieldError, Path
from apiserver.apis.virt.domainxml import beside, parsing, reading
from apiserver.apis.virt.hardware import cpu, firmware, interfaces, memory, tpm
from apiserver.apis.virt.spec.described import domain_of
from apiserver.apis.virt.v1alpha1 import domain_xml
from controller.reconcilers.launcher_pods.launcher_pod import requirements
from launcher.domain import filling
from launcher.domain.definition import Definition, Tap
from launcher.domain.disk_origins import Found
from launcher.domain.document import domain_uuid
from tests.unit.apiserver.apis.virt.domainxml.documents import uefi
from tests.unit.launcher.domain.test_document import CASES, GOLDEN

OWN: Final = domain_uuid("u-1", {})
EMPTIED: Final = (
    (re.escape(OWN), "@uuid@"),
    (r"(<loader[^>]*>)[^<]*", r"\1@loader@"),
    (r"<(nvram|kernel|initrd)>[^<]*", r"<\1>@\1@"),
    (r'<source (file|dev)="(?:/var/lib/kubevirt/[a-z-]+|/dev/kubevirt-disks)/([a-z0-9-]+)[^"]*"', r'<source \1="@disk:\2@"'),
    (r'<target dev="tap0"', '<target dev="@network:default@"'),
    (r'path="/run/kubevirt/(serial|agent).sock"', r'path="@\1@"'),
    (r'socket="/run/kubevirt/(vnc|spice).sock"', r'socket="@\1@"'),
)
"""Places in a golden document, as regular expressions, and their original placeholders."""
REFUSED: Final = {
    "disk-drivers": "/domain/devices/disk[4]/iotune",
    "filesystems": "/domain/devices/filesystem[1]",
    "filesystems-with-hugepages": "/domain/devices/filesystem",
    "further-networks": "/domain/devices/hostdev[1]",
    "host-devices": "/domain/devices/hostdev[1]",
    "lun": "/domain/devices/disk/@device",
    "macvtap": "/domain/devices/interface/driver/@queues",
    "memory-to-come": "/domain/devices/memory",
    "network-disks": "/domain/devices/disk[1]/@type",
    "numa-of-the-node": "/domain/cputune",
    "passt": "/domain/devices/interface[1]/@type",
    "plugin-disks": "/domain/devices/disk[1]/@type",
    "processors": "/domain/cputune",
    "redirected-devices": "/domain/devices/redirdev[1]",
    "room-and-queues": "/domain/devices/interface/driver/@queues",
    "virtio-video": "/domain/devices/serial[2]/source/@path",
    "vsock": "/domain/devices/vsock",
}
"""Typed fields without an equivalent in XML, each as its first place, by golden document. A new one is allowed, or is added here."""


def emptied(name: str) -> str:
    text = (GOLDEN / f"{name}.xml").read_text()
    for pattern, placeholder in EMPTIED:
        text = re.sub(pattern, placeholder, text)
    return text


def allowed(given: object, shape: beside.Shape = beside.FIELDS) -> Any:
    if isinstance(given, list):
        return [allowed(each, shape) for each in given]
    if not isinstance(given, Mapping) or not shape:
        return copy.deepcopy(given)
    return {name: allowed(value, shape[name]) for name, value in given.items() if name in shape}


def standing_beside(name: str) -> dict[str, Any]:
    found: dict[str, Any] = allowed({each: CASES[name].specification.get(each) or {} for each in ("firmware", "devices")})
    if "disks" in found["devices"]:
        found["devices"]["disks"] = [each for each in found["devices"]["disks"] if "type" in each]
    return found


@pytest.mark.parametrize("name", sorted(CASES))
def test_emptied_golden_document_is_filled_to_the_same_meaning(name: str) -> None:
    text, typed = emptied(name), CASES[name]
    if name in REFUSED:
        assert REFUSED[name] in [each.path for each in reading.problems_of(text)]
        return
    assert reading.problems_of(text) == ()
    specification = domain_of({"spec": {"domain": standing_beside(name), "domainXML": text}})
    definition = dataclasses.replace(typed, specification=specification)
    assert filling.fill(text, definition, dict(zip(["default"], typed.taps, strict=False))) == (GOLDEN / f"{name}.xml").read_text()
    for fact in (memory.guest_bytes, memory.page_size, cpu.max_vcpus, firmware.efi, firmware.state_claim, tpm.defaulted):
        assert fact(specification) == fact(typed.specification), fact.__name__


SEEDS: Final = 16
EACH: Final = 60
NASTY: Final = (
    *("", " ", "0", "-1", "00", "1", "2", "3", "16", "512", "513", "999999999999999999", "9" * 40, "1.5", "0x1", "١", "\u202e", "&#27;"),
    *("yes", "no", "on", "off", "qemu", "kvm", "@type@", "@uuid@", "@name@", "@disk:root@", "@disk:@", "@disk:a b@", "@network:default@"),
    *(
        "@mac:default@",
        "@mac:x@",
        "@serial@",
        "@loader@",
        "@nvram@",
        "@kernel@",
        "52:54:00:00:00:02",
        "ff:ff:ff:ff:ff:ff",
        OWN,
        OWN.upper(),
    ),
    *("/etc/passwd", "../x", "&amp;", "&x;", "KiB", "GiB", "raw", "qcow2", "virtio", "scsi", "none", "q35", "pc", "pc-q35-9.2"),
)


_VALUE: Final = re.compile(r"""([\w-]+)=["']([^"'<>]*)["']""")
_TEXT: Final = re.compile(r">([^<>\s][^<>]*)</")
_ELEMENT: Final = re.compile(r"<(\w+)[^<>]*/>|<(\w+)[^<>]*>[^<>]*</\2>")
_NOISE: Final = ("", "", "<", ">", "&", "\0", "\ud800", "<!--", "]]>", "<?x?>", "é", "\r\n")


def mutated(text: str, draw: random.Random, corpus: list[str]) -> str:
    """Return a document with a few changes, most of which leave it valid XML."""
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        begin, end, by = draw.choice((_other_value, _other_value, _other_element, _nasty_value, _nasty_text, _noise))(text, draw, corpus)
        text = text[:begin] + by + text[end:]
    return text


def _other_value(text: str, draw: random.Random, corpus: list[str]) -> tuple[int, int, str]:
    match = draw.choice(list(_VALUE.finditer(text)) or [None])
    if match is None:
        return 0, 0, ""
    return (*match.span(2), draw.choice([each[2] for other in corpus for each in _VALUE.finditer(other) if each[1] == match[1]] or [""]))


def _other_element(text: str, draw: random.Random, corpus: list[str]) -> tuple[int, int, str]:
    match = draw.choice(list(_ELEMENT.finditer(text)) or [None])
    if match is None:
        return 0, 0, ""
    by = draw.choice(["", match[0], draw.choice(list(_ELEMENT.finditer(draw.choice(corpus))))[0]])
    return draw.choice((match.start(), match.end())), match.end(), by


def _nasty_value(text: str, draw: random.Random, _corpus: list[str]) -> tuple[int, int, str]:
    spans = [match.span(2) for match in _VALUE.finditer(text)]
    return (*draw.choice(spans or [(0, 0)]), draw.choice(NASTY))


def _nasty_text(text: str, draw: random.Random, _corpus: list[str]) -> tuple[int, int, str]:
    spans = [match.span(1) for match in _TEXT.finditer(text)]
    return (*draw.choice(spans or [(0, 0)]), draw.choice(NASTY))


def _noise(text: str, draw: random.Random, _corpus: list[str]) -> tuple[int, int, str]:
    at = draw.randrange(len(text) + 1)
    return at, at + draw.randrange(2), draw.choice(_NOISE)


def admissible(name: str) -> dict[str, Any]:
    """Return ``spec.domain`` for the emptied golden document ``name`` with virt-api's names and paths; :func:`errors` may refuse it."""
    domain = standing_beside(name)
    container = ((domain.get("firmware") or {}).get("kernelBoot") or {}).get("container") or {}
    if container.get("initrdPath"):
        container["initrdPath"] = f"/{container['initrdPath'].lstrip('/')}"
    for disk in domain["devices"].get("disks") or ():
        disk["source"] = {**disk.get("source", {}), **({"reference": "x"} if disk["type"] == "Image" else {"name": disk["name"]})}
    return domain


def changed(domain: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    found = copy.deepcopy(domain)
    match draw.randrange(8):
        case 0:
            found["memory"] = {"guest": draw.choice(("64Mi", "128Mi", "1Gi", "134217729", "1"))}
        case 1:
            found["cpu"] = {draw.choice(("sockets", "cores", "threads")): draw.choice((1, 2, 7))}
        case 2:
            found.setdefault("firmware", {})["uuid"] = draw.choice((OWN.upper(), "x"))
        case 3:
            found.setdefault("firmware", {})["persistentState"] = {"claimName": "kept"}
        case 4 if found.get("devices", {}).get("disks"):
            found["devices"]["disks"].pop(draw.randrange(len(found["devices"]["disks"])))
        case _:
            pass
    return found


def errors(text: str, domain: dict[str, Any]) -> list[FieldError]:
    return domain_xml.validate({"domain": copy.deepcopy(domain), "domainXML": text}, Path("spec"))


def definition_of(text: str, domain: dict[str, Any]) -> tuple[Definition, dict[str, Tap]]:
    """Return virt-handler's definition of a VM, with volumes for the XML's disks, and the pod's taps by interface.

    ``text`` is the VM's ``spec.domainXML``, ``domain`` its ``spec.domain``; both without :func:`errors`.
    """
    read = reading.read(text)
    specification = domain_of({"spec": {"domain": domain, "domainXML": text}})
    blocks = {each.name: Found(block=each.is_block, format="qcow2" if each.format == "qcow2" else "raw") for each in read.disks}
    cards = interfaces.defaulted(specification)
    taps = {str(each["name"]): Tap(each.get("mac") or "52:54:00:00:00:77", f"tap{at}") for at, each in enumerate(cards)}
    return Definition("default", "testvm", "u-1", specification, "kvm" if read.type == "kvm" else "qemu", (), blocks), taps


@pytest.mark.parametrize("seed", range(SEEDS))
def test_mutations_are_refused_with_their_paths_or_can_be_filled(seed: int) -> None:
    draw = random.Random(seed)
    names = [each for each in sorted(CASES) if each not in REFUSED and not errors(emptied(each), admissible(each))]
    assert len(names) >= 12
    corpus = [emptied(each) for each in names]
    admitted = 0
    for _ in range(EACH):
        at = draw.randrange(len(names))
        text, domain = mutated(corpus[at], draw, corpus), changed(admissible(names[at]), draw)
        if found := errors(text, domain):
            assert all(each.path.startswith("spec.domain") for each in found)
            assert all(each.body.isprintable() and len(each.body) < 1000 for each in found)
            continue
        admitted += 1
        assert libvirts_places(filling.fill(text, *definition_of(text, domain))) == []
        requirements({"metadata": {"name": "testvm"}, "spec": {"domain": domain, "domainXML": text}}, {})
    assert admitted >= EACH // 20


def libvirts_places(filled: str) -> list[str]:
    """Return placeholders left in places that libvirt interprets; in a title they are plain text."""
    root = ET.fromstring(filled)
    paths = [root.get("type"), *(root.findtext(each) for each in ("name", "uuid", "os/loader", "os/nvram", "os/kernel", "os/initrd"))]
    paths += [root.findtext("sysinfo/system/entry[@name='uuid']")]
    paths += [each.get(name) for each in root.iter() for name in ("file", "dev", "path", "socket", "address")]
    return [each for each in paths if each and "@" in each]


@pytest.mark.parametrize("seed", range(4))
def test_bytes_of_any_kind_are_no_reason_to_raise(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(100):
        text = "".join(draw.choice((*uefi(), "<", ">", "&", "\x00", "\ud800", "\U0010ffff")) for _ in range(draw.randrange(200)))
        assert reading.problems_of(f"<domain {text}")
        with pytest.raises(parsing.Malformed):
            reading.read(f"<domain {text}")
