from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.domain.values import InvalidSpecification
from launcher.main.disks import kernel_files


@pytest.fixture
def image(tmp_path: Path, pod_directories: Callable[..., None]) -> Path:
    pod_directories(KERNEL_BOOT=tmp_path)
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/vmlinuz").touch()
    return tmp_path


def with_kernel(**container: str) -> dict[str, Any]:
    return {"memory": {"guest": "128Mi"}, "firmware": {"kernelBoot": {"container": container}}}


def test_kernel_and_initrd_must_be_files_of_their_image(image: Path) -> None:
    kernel_files.require({})
    kernel_files.require(with_kernel(kernelPath="/boot/vmlinuz"))
    for key, path, others in (
        ("kernelPath", "/boot/nothere", {}),
        ("kernelPath", "/boot", {}),
        ("initrdPath", "boot/initrd", {"kernelPath": "/boot/vmlinuz"}),
    ):
        text = f"firmware.kernelBoot.container.{key}: file {path} not found in its image"
        with pytest.raises(InvalidSpecification, match=f"^{re.escape(text)}$"):
            kernel_files.require(with_kernel(**others, **{key: path}))
    (image / "boot/initrd").touch()
    kernel_files.require(with_kernel(kernelPath="boot/vmlinuz", initrdPath="boot/initrd"))
