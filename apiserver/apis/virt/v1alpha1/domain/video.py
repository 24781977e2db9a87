"""The video card: ``devices.video``."""

from __future__ import annotations

from pydantic import Field

from apiserver.apis.meta import quantity
from apiserver.apis.meta.schema import Int32, Model, Quantity
from apiserver.apis.meta.validation import FieldError, Path, forbidden, invalid
from apiserver.apis.virt.hardware import graphics
from apiserver.apis.virt.hardware import video as hardware
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_between, validate_bytes


class Video(Model):
    """The graphics card of the displays."""

    type: hardware.Type | None = Field(
        None,
        description="The emulated card. Default vga, which every guest supports; none without displays. bochs: like vga, without its text "
        "modes. virtio: higher resolutions and several heads, for guests with its driver.",
    )
    vram: Quantity | None = Field(
        None, description="vga and bochs: the card's memory, a power of two from 4Mi to 256Mi. Default 16Mi, enough for 2560x1440 points."
    )
    heads: Int32 | None = Field(None, description="virtio: number of screens, at most 4. Default 1, the screen that vnc shows.")


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return errors in ``devices.video``, below ``path``."""
    video, path = hardware.defaulted(domain), path.child("devices", "video")
    kind, found = video["type"], []
    if kind == "none" and graphics.defaulted(domain):
        found.append(invalid(path.child("type"), kind, "displays need a video card: omit this, or set graphics: []"))
    if "vram" in video:
        found += _validate_vram(kind, video["vram"], path.child("vram"))
    if "heads" in video:
        if kind != "virtio":
            found.append(forbidden(path.child("heads"), "may be set only for type virtio"))
        else:
            found += validate_between(video["heads"], 1, hardware.MAX_HEADS, path.child("heads"))
    return found


def _validate_vram(kind: str, vram: object, path: Path) -> list[FieldError]:
    if kind not in hardware.WITH_VRAM:
        return [forbidden(path, f"may be set only for type {' or '.join(hardware.WITH_VRAM)}")]
    found = validate_bytes(vram, hardware.MIN_VRAM, hardware.MAX_VRAM, path)
    if not found and (amount := quantity.parse(str(vram)).bytes) & amount - 1:
        found.append(invalid(path, vram, "must be a power of two"))
    return found
