from __future__ import annotations

import gc
from contextlib import suppress
from pathlib import Path

import pytest

from apiserver.apis.virt.domainxml import parsing, reading
from apiserver.apis.virt.hardware import consoles, cpu, disks, firmware, graphics, interfaces, memory, tpm
from apiserver.apis.virt.spec.described import domain_of
from tests.unit.apiserver.apis.virt.domainxml.documents import DISK, INTERFACE, LOADER, ROOT, SERIAL, document, uefi

MIB = 1 << 20
DUMPED = Path(__file__).parent / "dumped.xml"
"""``virsh dumpxml`` (libvirt 9.0), with the placeholders put back."""
CELL = "<cell id='{}' cpus='{}' memory='64' unit='MiB'/>"


def a_vm(xml: str, **domain: object) -> dict[str, object]:
    return {"spec": {"domain": domain, "domainXML": xml}}


@pytest.mark.parametrize(
    ("element", "expected"),
    [
        ("<memory>131072</memory>", 128 * MIB),
        ("<memory unit='KiB'>131072</memory>", 128 * MIB),
        ("<memory unit='k'>131072</memory>", 128 * MIB),
        ("<memory unit='KB'>131072</memory>", 131072000),
        ("<memory unit='b'>134217729</memory>", 128 * MIB + 1024),
        ("<memory unit='bytes'>134217728</memory>", 128 * MIB),
        ("<memory unit='M'>128</memory>", 128 * MIB),
        ("<memory unit='MB'>128</memory>", 128_000_000),
        ("<memory unit='gib'>1</memory>", 1024 * MIB),
        ("<memory unit='TB'>1</memory>", 10**12 // 1024 * 1024 + (1024 if 10**12 % 1024 else 0)),
    ],
)
def test_memory_is_read_in_the_units_of_libvirt(element: str, expected: int) -> None:
    assert reading.read(document(memory=element)).memory_bytes == expected


def test_the_cells_are_the_memory_whatever_the_element_says() -> None:
    cells = CELL.format(0, 0) + CELL.format(1, 1)
    found = reading.read(document(inside=f"<cpu><numa>{cells}</numa></cpu>", memory="<memory unit='GiB'>4</memory>"))
    assert found.memory_bytes == 128 * MIB


@pytest.mark.parametrize(
    ("cpu_element", "expected"),
    [
        ("", (8, 1, 1)),
        ("<cpu><topology sockets='2' cores='2' threads='2'/></cpu>", (2, 2, 2)),
        ("<cpu><topology sockets='1' dies='2' cores='2' threads='2'/></cpu>", (2, 2, 2)),
    ],
)
def test_processors_are_read_with_their_topology(cpu_element: str, expected: tuple[int, int, int]) -> None:
    found = reading.read(document(inside=cpu_element, vcpu="<vcpu current='3'>8</vcpu>"))
    assert found.topology == expected


def test_memory_of_devices_and_caches_is_counted() -> None:
    video = "<video><model type='vga' vram='65536'/></video><video><model type='virtio'/></video>"
    assert reading.read(document(video)).device_bytes == (64 + 264) * MIB
    assert reading.read(document(inside="<iothreads>4</iothreads>")).device_bytes == 8 * MIB
    assert reading.read(document()).cache_bytes == 1 << 30
    assert reading.read(document(inside="<features><tcg><tb-cache unit='MiB'>64</tb-cache></tcg></features>")).cache_bytes == 64 * MIB


def test_the_typed_fields_say_what_the_xml_means() -> None:
    vnc = "<graphics type='vnc'><listen type='socket' socket='@vnc@'/></graphics>"
    domain = domain_of(a_vm(document(DISK + INTERFACE + SERIAL + vnc), devices={"disks": [ROOT]}))
    assert (memory.guest_bytes(domain), cpu.vcpus(domain)) == (128 * MIB, 2)
    assert [each["name"] for each in disks.defaulted(domain)] == ["root"]
    assert [each["name"] for each in interfaces.defaulted(domain)] == ["default"]
    assert graphics.defaulted(domain) == [{"type": "vnc"}]
    assert consoles.defaulted(domain)


def test_libvirts_dump_of_a_typed_machine_is_read() -> None:
    """The golden domain ``smallest`` on a q35, with libvirt's additions."""
    found = reading.read(DUMPED.read_text())
    assert (found.cache_bytes, found.has_serial, found.graphics) == (64 * MIB, True, ("vnc",))


def test_an_interface_of_another_type_is_told_what_to_write() -> None:
    (problem,) = reading.problems_of(document("<interface type='network'><source network='default'/></interface>"))
    assert problem.path == "/domain/devices/interface/@type"
    assert "<target dev='@network:NAME@' managed='no'/>" in problem.text


def test_xml_without_devices_has_none() -> None:
    domain = domain_of(a_vm(document()))
    assert [interfaces.defaulted(domain), graphics.defaulted(domain), consoles.defaulted(domain), disks.defaulted(domain)] == [
        [],
        [],
        [],
        [],
    ]


def test_a_port_that_is_no_socket_of_the_pod_is_no_console() -> None:
    assert consoles.defaulted(domain_of(a_vm(document("<serial type='pty'/>")))) == []


def test_typed_fields_override_the_xml() -> None:
    topology = "<cpu><topology sockets='2' cores='1' threads='1'/></cpu>"
    domain = domain_of(a_vm(document(inside=topology), memory={"guest": "1Gi"}, cpu={"cores": 3}))
    assert (memory.guest_bytes(domain), cpu.vcpus(domain)) == (1024 * MIB, 3)


def test_mac_of_the_xml_is_used_unless_typed() -> None:
    xml = document(INTERFACE.replace("@mac:default@", "52-54-00-C0-FF-EE".replace("-", ":")))
    (found,) = interfaces.defaulted(domain_of(a_vm(xml)))
    assert found["mac"] == "52:54:00:c0:ff:ee"
    (found,) = interfaces.defaulted(domain_of(a_vm(xml, devices={"interfaces": [{"name": "default", "mac": "52:54:00:00:00:01"}]})))
    assert found["mac"] == "52:54:00:00:00:01"


SECURE = uefi(LOADER.replace("type", "secure='yes' type"), features="<acpi/><smm state='on'/>")
TPM = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'{}/></tpm>"


@pytest.mark.parametrize(
    ("xml", "claim", "expected"),
    [
        (document(), False, None),
        (uefi(), False, {"secureBoot": False, "persistent": False}),
        (uefi(LOADER.replace("type", "secure='no' type")), False, {"secureBoot": False, "persistent": False}),
        (SECURE, False, {"secureBoot": True, "persistent": False}),
        (SECURE, True, {"secureBoot": True, "persistent": True}),
    ],
)
def test_firmware_follows_the_loader_and_a_claim_keeps_its_state(xml: str, expected: object, *, claim: bool) -> None:
    beside = {"firmware": {"persistentState": {"claimName": "Kept"}}} if claim else {}
    domain = domain_of(a_vm(xml, **beside))
    assert firmware.efi(domain) == expected
    assert firmware.state_claim(domain) == ("kept" if claim else "")


@pytest.mark.parametrize(("said", "expected"), [("", False), (" persistent_state='no'", False), (" persistent_state='yes'", True)])
def test_a_tpm_is_kept_where_the_xml_says_so(said: str, *, expected: bool) -> None:
    assert tpm.defaulted(domain_of(a_vm(document(TPM.format(said))))) == {"persistent": expected}
    assert tpm.defaulted(domain_of(a_vm(document()))) is None


def test_state_directory_is_the_xml_uuid_unless_typed() -> None:
    own, other = "5D307CA9-b3ef-428c-8861-06e72d69f223", "6d307ca9-b3ef-428c-8861-06e72d69f223"
    xml = document().replace("@uuid@", own)
    assert firmware.state_directory(domain_of(a_vm(document())), "u-1") == "u-1"
    assert firmware.state_directory(domain_of(a_vm(xml)), "u-1") == own.lower()
    assert firmware.state_directory(domain_of(a_vm(xml, firmware={"uuid": other})), "u-1") == other


@pytest.mark.parametrize(
    ("page", "expected"),
    [("size='2048' unit='KiB'", "2Mi"), ("size='2048'", "2Mi"), ("size='2' unit='M'", "2Mi"), ("size='1' unit='GiB'", "1Gi")],
)
def test_huge_page_size_is_the_xmls_with_typed_memory_too(page: str, expected: str) -> None:
    xml = document(inside=f"<memoryBacking><hugepages><page {page}/></hugepages></memoryBacking>")
    assert memory.page_size(domain_of(a_vm(xml))) == expected
    assert memory.compared(domain_of(a_vm(xml, memory={"guest": "1Gi"})))["guest"] == 1 << 30
    assert memory.page_size(domain_of(a_vm(xml, memory={"guest": "1Gi"}))) == expected
    assert memory.page_size(domain_of(a_vm(document()))) == ""


@pytest.mark.parametrize("inside", ["", "<source type='memfd'/><access mode='shared'/>", "<source type='anonymous'/>", "<nosharepages/>"])
def test_memory_of_ordinary_pages_may_be_of_several_kinds(inside: str) -> None:
    found = reading.read(document(inside=f"<memoryBacking>{inside}</memoryBacking>"))
    assert (found.memory_bytes, found.page_size) == (128 * MIB, "")


def test_of_what_cannot_be_read_the_typed_fields_are_left() -> None:
    assert domain_of(a_vm("<domain", memory={"guest": "1Gi"})) == {"memory": {"guest": "1Gi"}}


def test_offsets_are_of_bytes_and_of_the_value_alone() -> None:
    text = "<domain  a = \"ä&gt;'>\"\n b='\"/>' ><name>ü</name ></domain>"
    root = parsing.parse(text)
    data = text.encode()
    assert {name: data[begin:end].decode() for name, (begin, end) in root.spans.items()} == {"a": "ä&gt;'>", "b": '"/>'}
    (name,) = root.children
    assert name.inner is not None
    assert data[slice(*name.inner)].decode() == name.text == "ü"


def test_controller_with_a_model_needs_no_subelement() -> None:
    controllers = "<controller type='pci' index='0' model='pcie-root'/><controller type='pci' model='pcie-root-port'/>"
    assert reading.problems_of(document(controllers)) == ()
    (problem,) = reading.problems_of(document("<controller type='pci' index='0'/>"))
    assert str(problem) == "/domain/devices/controller/@model: is required"


def test_places_are_named_as_in_xpath() -> None:
    paths = [each.path for each in parsing.parse("<a><b/><c/><b><d/></b></a>").children]
    assert paths == ["/a/b[1]", "/a/c", "/a/b[2]"]


class Compared(str):
    __slots__ = ()
    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("kinds", [1, 2, 40, 1000])
def test_siblings_are_numbered_without_quadratic_comparisons(kinds: int) -> None:
    count = 1000
    names = [Compared(f"n{number % kinds}") for number in range(count)]
    Compared.times = 0
    found = parsing.numbers(names)
    assert Compared.times <= 10 * count
    assert found == ([0] * count if kinds == count else [number // kinds + 1 for number in range(count)])


def test_foreign_elements_are_not_scanned_for_placeholders() -> None:
    root = parsing.parse("<a xmlns:x='u'><x:b c='d'>e</x:b><f x:g='h' i='j'/><k l='m'>n</k></a>")
    assert [(bool(each.spans), each.inner is not None) for each in root.children] == [(False, False), (False, False), (True, True)]
    assert [each.text for each in root.children] == ["e", "", "n"]


@pytest.mark.parametrize("text", ["<a><b/><b c='d'>e</b></a>", "<a><b/>", "<a>x<b/></a>", "<!DOCTYPE a><a/>"])
def test_parsed_documents_leave_no_garbage_cycles(text: str) -> None:
    """A collection would visit the document's thousands of objects in the event loop."""
    gc.collect()
    gc.disable()
    try:
        with suppress(parsing.Malformed):
            parsing.parse(text)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_the_largest_document_is_read_and_one_byte_more_is_not() -> None:
    largest = f"<a>{'ä' * ((parsing.MAX_BYTES - 8) // 2)} </a>"
    assert len(largest.encode()) == parsing.MAX_BYTES
    assert parsing.parse(largest).name == "a"
    with pytest.raises(parsing.Malformed, match=f"may not be more than {parsing.MAX_BYTES} bytes, but has {parsing.MAX_BYTES + 1}"):
        parsing.parse(largest.replace(" ", "  "))


@pytest.mark.parametrize(
    "text",
    [
        "<a>" * parsing.MAX_DEPTH + "</a>" * parsing.MAX_DEPTH,
        "<a>" + "<b/>" * (parsing.MAX_ELEMENTS - 1) + "</a>",
        "<a " + " ".join(f"a{each}=''" for each in range(parsing.MAX_ATTRIBUTES)) + "/>",
        f"<a xmlns:x='{'u' * parsing.MAX_NAMESPACE}'/>",
        "\n\t <a/>",
        "<?xml version='1.0' encoding='Utf-8'?><a/>",
        "<?xml version='1.0'?><a/>",
        "<!-- x --><a/><!-- y -->",
        "<a><!-- x --><b/><!-- y --></a>",
        "<a><!-- x --></a>",
        "<a> \n<!-- x -->\t</a>",
    ],
)
def test_documents_at_the_limits_are_read(text: str) -> None:
    assert parsing.parse(text).name == "a"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("<a/>", 1),
        ("<?xml version='1.0'?>\n<!-- x --><a b='&lt;'>\n<c></c>&lt;<c/></a>", 3),
        ("<a><!-- <b> --><c/></a>", 3),
        ("<x:a xmlns:x='u'><x:b>d</x:b></x:a>", 2),
        ("x", 0),
    ],
)
def test_elements_are_counted_without_being_read(text: str, count: int) -> None:
    assert parsing.element_count(text) == count


def test_text_and_comments_of_elements_are_told_apart() -> None:
    root = parsing.parse("<a>\n <b/> x&#x20;<!-- y --></a>".replace(" x&#x20;", ""))
    assert (root.text, root.children[0].inner) == ("", None)
    for text in ("<a>x<!-- y --></a>", "<a>x<b/></a>", "<a><b/>x</a>"):
        with pytest.raises(parsing.Malformed):
            parsing.parse(text)


DISK_PATH = "/domain/devices/disk"
CACHED = {"": True, "cache='none'": False, "cache='directsync'": False, "cache='writeback'": True, "cache='writethrough'": True}


@pytest.mark.parametrize("cache", CACHED)
def test_a_disk_is_what_the_xml_says(cache: str) -> None:
    (found,) = reading.read(document(DISK.replace("type='raw'", f"type='raw' {cache}"))).disks
    assert found == reading.Disk("root", "vda", DISK_PATH, is_block=False, format="raw", is_cached=CACHED[cache], is_read_only=False)


def test_a_disk_of_another_kind_is_what_the_xml_says() -> None:
    xml = DISK.replace("'file'", "'block'").replace("source file", "source dev").replace("'raw'", "'qcow2'")
    (found,) = reading.read(document(xml.replace("</disk>", "<readonly/></disk>"))).disks
    assert found == reading.Disk("root", "vda", DISK_PATH, is_block=True, format="qcow2", is_cached=True, is_read_only=True)
    (found,) = reading.read(document(DISK.replace("<driver name='qemu' type='raw'/>", ""))).disks
    assert (found.format, found.is_cached) == ("raw", True)
    (found,) = reading.read(document(DISK.replace("<disk ", "<disk device='cdrom' ").replace("virtio", "sata"))).disks
    assert found.is_read_only
    drive = "<disk type='file' device='cdrom'><target dev='sda' bus='sata'/></disk>"
    assert reading.read(document(drive)).disks == ()


@pytest.mark.parametrize(
    ("card", "mebibytes"),
    [
        ("<model type='none'/>", 0),
        ("<model type='vga'/>", 16),
        ("<model type='bochs' vram='16384'/>", 16),
        ("<model type='bochs' vram='16385'/>", 32),
        ("<model type='cirrus' vram='1024'/>", 1),
        ("<model type='virtio' vram='1024'/>", 264),
        ("<model type='qxl'/>", 64 + 64 + 16),
        ("<model type='qxl' ram='16384'/>", 32 + 64 + 16),
        ("<model type='qxl' ram='16384' vgamem='65536' vram='131072'/>", 128 + 128 + 64),
    ],
)
def test_the_memory_of_a_card_is_what_qemu_takes_for_it(card: str, mebibytes: int) -> None:
    assert reading.read(document(f"<video>{card}</video>")).device_bytes == mebibytes * MIB


def test_elements_missing_from_the_xml_are_read_as_empty() -> None:
    found = reading.read(document(attributes="type='@type@'").replace("<uuid>@uuid@</uuid>", ""))
    assert (found.type, found.uuid, found.machine, found.has_topology) == ("@type@", "", "q35", False)
    assert (found.disks, found.networks, found.has_serial, found.graphics, found.device_bytes) == ((), (), False, (), 0)
    assert reading.problems_of(document()) == ()


def test_interface_macs_are_the_xmls_unless_placeholders() -> None:
    given = INTERFACE.replace("@mac:default@", "52:54:00:00:00:01").replace("default", "other")
    assert reading.read(document(INTERFACE + given)).networks == (("default", ""), ("other", "52:54:00:00:00:01"))


def test_a_line_that_cannot_be_read_is_named_with_its_number() -> None:
    (problem,) = reading.problems_of("<domain>\n<a>\n</domain>")
    assert (problem.path, problem.text) == ("line 3", "is not well-formed XML: mismatched tag")


@pytest.mark.parametrize(
    ("element", "is_the_nodes", "model"),
    [
        ("", False, ""),
        ("<cpu><topology sockets='1' cores='2' threads='1'/></cpu>", False, ""),
        ("<cpu><model>EPYC</model></cpu>", False, "EPYC"),
        ("<cpu mode='custom' match='exact' check='partial'><model fallback='forbid'>EPYC</model></cpu>", False, "EPYC"),
        ("<cpu match='strict'><model>EPYC</model></cpu>", False, "EPYC"),
        ("<cpu match='minimum'><model>EPYC</model></cpu>", True, "EPYC"),
        ("<cpu mode='host-model'/>", True, ""),
        ("<cpu mode='host-model'><model fallback='allow'>EPYC</model></cpu>", True, ""),
        ("<cpu mode='host-passthrough' check='none'/>", True, ""),
        ("<cpu mode='maximum'/>", True, ""),
    ],
)
def test_cpu_mode_tells_node_cpu_and_model(element: str, model: str, *, is_the_nodes: bool) -> None:
    found = reading.read(document(inside=element)).cpu
    assert (found.is_the_nodes, found.model) == (is_the_nodes, model)
    assert found.model_path == ("/domain/cpu/model" if model else "")


def test_features_of_the_cpu_are_read_with_their_places() -> None:
    features = "<feature policy='require' name='avx2'/><feature policy='forbid' name='rtm'/>"
    found = reading.read(document(inside=f"<cpu><model>EPYC</model>{features}</cpu>")).cpu.features
    assert [(each.name, each.policy) for each in found] == [("avx2", "require"), ("rtm", "forbid")]
    assert [each.path for each in found] == ["/domain/cpu/feature[1]", "/domain/cpu/feature[2]"]
