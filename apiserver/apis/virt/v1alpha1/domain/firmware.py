"""Firmware, and a kernel to start from: ``firmware``."""

from __future__ import annotations

import re
from typing import Final

from pydantic import Field

from apiserver.apis.meta.schema import Model
from apiserver.apis.meta.validation import FieldError, Path, invalid, too_long
from apiserver.apis.virt.v1alpha1.domain.images import PullPolicy
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_image, validate_path

MAX_KERNEL_ARGS: Final = 2048

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class KernelBootContainer(Model):
    """A container image with a kernel in it."""

    image: str = Field(description="The image's reference.")
    image_pull_policy: PullPolicy | None = Field(None, description="When the image is pulled, as for a container.")
    kernel_path: str = Field(description="Absolute path of the kernel within the image.")
    initrd_path: str | None = Field(None, description="Absolute path of the initial RAM disk within the image.")


class KernelBoot(Model):
    """Starts a kernel directly, without boot loader."""

    container: KernelBootContainer = Field(description="Where the kernel comes from.")
    kernel_args: str | None = Field(None, description="The kernel's command line.")


class Firmware(Model):
    """Firmware of the machine, and a kernel to start from."""

    uuid: str | None = Field(
        None, description="The machine's UUID as the guest sees it. Default: one computed from the object's uid, the same at every start."
    )
    kernel_boot: KernelBoot | None = Field(None, description="A kernel to start instead of a boot loader from a disk.")


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return what is wrong with ``firmware``."""
    firmware, path = domain.get("firmware") or {}, path.child("firmware")
    found = []
    if (uuid := firmware.get("uuid")) is not None and not _UUID.fullmatch(uuid):
        found.append(invalid(path.child("uuid"), uuid, "must be a UUID such as 5d307ca9-b3ef-428c-8861-06e72d69f223"))
    boot = firmware.get("kernelBoot")
    return found if boot is None else found + _validate_kernel_boot(boot, path.child("kernelBoot"))


def _validate_kernel_boot(boot: Object, path: Path) -> list[FieldError]:
    container, below = boot.get("container") or {}, path.child("container")
    found = validate_image(container.get("image") or "", below.child("image"))
    found += validate_path(container.get("kernelPath") or "", below.child("kernelPath"), absolute=True)
    if "initrdPath" in container:
        found += validate_path(container["initrdPath"], below.child("initrdPath"), absolute=True)
    arguments, place = boot.get("kernelArgs") or "", path.child("kernelArgs")
    if len(arguments.encode()) > MAX_KERNEL_ARGS:
        found.append(too_long(place, MAX_KERNEL_ARGS))
    elif not arguments.isprintable():
        found.append(invalid(place, arguments, "must consist of printable characters"))
    return found
