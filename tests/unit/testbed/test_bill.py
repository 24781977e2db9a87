from __future__ import annotations

import importlib.resources
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry
from referencing.jsonschema import DRAFT7

from tests.testbed import bill, images, project_images

STATUS = """Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.41-12+deb13u1
Description: a library
 Version: 9 of the description is none

Package: gone
Status: deinstall ok config-files
Architecture: all
Version: 1

Package: tzdata
Status: install ok installed
Architecture: all
Version: 1:2026a-0~x
"""


def schema_validator() -> jsonschema.Draft7Validator:
    folder = importlib.resources.files("cyclonedx.schema._res")
    schemas = {each.name: json.loads(each.read_text(encoding="utf-8")) for each in folder.iterdir() if each.name.endswith(".schema.json")}
    registry: Registry[Any] = Registry().with_resources(
        (each["$id"], DRAFT7.create_resource(each)) for each in schemas.values() if "$id" in each
    )
    (main,) = (each for name, each in schemas.items() if name.startswith("bom-1.6"))
    return jsonschema.Draft7Validator(main, registry=registry)


def made(root: Path) -> tuple[dict[str, Any], Path]:
    path = root.parent / "image.cdx.json"
    bill.write("virt-api", "dev", root, path)
    return json.loads(path.read_text()), path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "var/lib/dpkg").mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text(STATUS)
    for name, licence in (("Foo_Bar", "License-Expression: MIT\n"), ("plain", "")):
        directory = root / "usr/local/lib/python3.13/dist-packages" / f"{name}-1.0.dist-info"
        directory.mkdir(parents=True)
        (directory / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{licence}\n")
    return root


def test_bill_names_installed_packages_and_distributions_only(root: Path) -> None:
    document, path = made(root)

    assert [each["purl"] for each in document["components"]] == [
        "pkg:deb/debian/libc6@2.41-12%2Bdeb13u1?arch=amd64",
        "pkg:deb/debian/tzdata@1:2026a-0~x?arch=all",
        "pkg:pypi/foo-bar@1.0",
        "pkg:pypi/plain@1.0",
    ]
    assert bill.debian_packages(path) == ["libc6=2.41-12+deb13u1", "tzdata=1:2026a-0~x"]
    assert document["components"][2]["licenses"] == [{"expression": "MIT"}]


def test_bill_is_valid_and_equal_for_equal_contents(root: Path) -> None:
    document, _ = made(root)

    schema_validator().validate(document)
    assert made(root)[0] == document
    (root / bill.PACKAGES_LIST).parent.mkdir(parents=True)
    (root / bill.PACKAGES_LIST).write_text("busybox-static=1:1.35\n")
    assert made(root)[0]["serialNumber"] != document["serialNumber"]
    assert "pkg:deb/debian/busybox-static@1:1.35" in {each["purl"] for each in made(root)[0]["components"]}


@pytest.mark.slow
@pytest.mark.parametrize("name", project_images.NAMES)
def test_each_image_has_a_bill_of_what_is_in_it(name: str) -> None:
    check(name)


def check(name: str) -> None:
    image = project_images.image_of(name)
    images.ensure([image])
    document = json.loads(bill.path_of(image.archive).read_text())

    schema_validator().validate(document)
    kinds = {each["purl"].split("/")[0] for each in document["components"]}
    process = next((process for process in project_images.PROCESSES if process.name == name), None)
    if process is not None and process.extra is not None:
        wanted = {line.split("==")[0] for line in project_images.pins_path(process).read_text().splitlines() if "==" in line}
        assert {each["name"] for each in document["components"] if each["purl"].startswith("pkg:pypi/")} == wanted
    assert kinds == {"etcd": {"pkg:deb", "pkg:golang"}, "testguest": {"pkg:deb"}, "debian": {"pkg:deb"}, "virt-launcher": {"pkg:deb"}}.get(
        name, {"pkg:deb", "pkg:pypi"}
    )
