"""Bills of materials: an image's contents, as CycloneDX 1.6 in JSON (ECMA-424), one file next to the image's archive.

They are read from the image's file system: Debian packages from dpkg's database (or ``usr/share/kubevirt/packages.list``), Python
distributions from their metadata, Go modules from the binaries. Equal contents give an equal file.
"""

import importlib.metadata
import json
import pathlib
import re
import uuid
from collections.abc import Iterator
from typing import Any

from tests.testbed import progress

SUFFIX = ".cdx.json"
PACKAGES_LIST = "usr/share/kubevirt/packages.list"
"""One ``name=version`` per line, in images made of unpacked packages."""
_DPKG_STATUS = "var/lib/dpkg/status"
_PYTHON_PATHS = "usr/local/lib/python3*/dist-packages"
_PROGRAMS = "usr/local/bin"
_ELF = b"\x7fELF"

Component = dict[str, Any]


def path_of(archive: pathlib.Path) -> pathlib.Path:
    return archive.with_suffix(SUFFIX)


def write(name: str, version: str, root: pathlib.Path, path: pathlib.Path) -> None:
    components = sorted((*_debian(root), *_python(root), *_go(root)), key=lambda each: str(each["purl"]))
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([name, version, components], sort_keys=True))}",
        "version": 1,
        "metadata": {"component": {"type": "container", "bom-ref": name, "name": name, "version": version}},
        "components": components,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def debian_packages(path: pathlib.Path) -> list[str]:
    components = json.loads(path.read_text())["components"]
    return sorted(f"{each['name']}={each['version']}" for each in components if each["purl"].startswith("pkg:deb/"))


def _debian(root: pathlib.Path) -> Iterator[Component]:
    status, unpacked = root / _DPKG_STATUS, root / PACKAGES_LIST
    if status.is_file():
        for paragraph in status.read_text(encoding="utf-8").split("\n\n"):
            fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", paragraph, re.MULTILINE))
            if fields.get("Status", "").endswith(" installed"):
                yield _component("deb/debian", fields["Package"], fields["Version"], f"?arch={fields['Architecture']}")
    if unpacked.is_file():
        for line in unpacked.read_text(encoding="utf-8").split():
            name, _, version = line.partition("=")
            yield _component("deb/debian", name, version)


def _python(root: pathlib.Path) -> Iterator[Component]:
    for directory in root.glob(_PYTHON_PATHS):
        for distribution in importlib.metadata.distributions(path=[str(directory)]):
            component = _component("pypi", re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower(), distribution.version)
            licence = distribution.metadata.json.get("license_expression")
            yield {**component, "licenses": [{"expression": licence}]} if licence else component


def _go(root: pathlib.Path) -> Iterator[Component]:
    found: dict[str, Component] = {}
    for program in sorted((root / _PROGRAMS).glob("*")):
        if not program.is_file() or not _is_elf(program):
            continue
        for line in progress.output_of(["go", "version", "-m", program]).splitlines():
            words = line.split("\t")
            if len(words) > 3 and words[1] in ("mod", "dep", "=>"):
                component = _component("golang", words[2], words[3])
                found[component["purl"]] = component
    yield from found.values()


def _is_elf(program: pathlib.Path) -> bool:
    with program.open("rb") as file:
        return file.read(len(_ELF)) == _ELF


def _component(kind: str, name: str, version: str, qualifiers: str = "") -> Component:
    purl = f"pkg:{kind}/{_quoted(name)}@{_quoted(version)}{qualifiers}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _quoted(word: str) -> str:
    # The purl specification percent-encodes everything but these, and `/` separates the segments of a name.
    return re.sub(r"[^A-Za-z0-9._~:/-]", lambda found: f"%{ord(found[0]):02X}", word)
