"""virt-api's CPU models and features, compared with the host's older libvirt and QEMU."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest

from apiserver.apis.virt.v1alpha1.domain import cpu_names

pytestmark = pytest.mark.host
CPU_MAP: Final = Path("/usr/share/libvirt/cpu_map")
OTHERWISE_IN_QEMU: Final = {"pclmuldq": "pclmulqdq"}


def libvirts(tag: str) -> set[str]:
    return {str(each.get("name")) for file in CPU_MAP.glob("x86_*.xml") for each in ET.parse(file).getroot().findall(tag)}


def plain(name: str) -> str:
    return re.sub("[_.]", "-", OTHERWISE_IN_QEMU.get(name, name))


def test_every_name_that_libvirt_and_qemu_have_is_taken() -> None:
    told = subprocess.run(["qemu-system-x86_64", "-cpu", "help"], capture_output=True, text=True, check=True).stdout
    models, _, flags = told.partition("Recognized CPUID flags:")
    in_qemu = set(re.findall(r"^(?:x86)? +(\S+)", models, re.MULTILINE)), {plain(each) for each in flags.split()}
    of_libvirt = libvirts("model"), libvirts("feature")
    assert len(of_libvirt[0]) > 40
    assert len(of_libvirt[1]) > 150
    assert of_libvirt[0] & in_qemu[0] <= cpu_names.MODELS
    assert {each for each in of_libvirt[1] if plain(each) in in_qemu[1]} <= cpu_names.FEATURES
