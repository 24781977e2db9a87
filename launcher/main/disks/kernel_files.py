"""Checks the files of a machine's kernel, which are in a container image."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apiserver.apis.meta.objects import dig
from launcher.domain import firmware
from launcher.domain.values import InvalidSpecification


def require(specification: Mapping[str, Any]) -> None:
    """Check that the files of ``firmware.kernelBoot.container`` that are set exist, or raise InvalidSpecification."""
    container = dig(specification, "firmware", "kernelBoot", "container") or {}
    for key in ("kernelPath", "initrdPath"):
        if (given := container.get(key)) and not Path(firmware.kernel_file(container, key)).is_file():
            raise InvalidSpecification(f"firmware.kernelBoot.container.{key}: file {given} not found in its image")
