"""The watchdog: ``devices.watchdog``."""

from __future__ import annotations

from pydantic import Field

from apiserver.apis.meta.schema import Model
from apiserver.apis.meta.validation import FieldError, Path
from apiserver.apis.virt.hardware import watchdog as hardware
from apiserver.apis.virt.v1alpha1.domain.rules import Object


class Watchdog(Model):
    """A timer that the guest must reset, and the action if it does not."""

    model: hardware.Model | None = Field(None, description="The emulated device. Default i6300esb, a card on the PCI bus.")
    action: hardware.Action | None = Field(
        None,
        description="Action when the timer runs out. Default reset. reset: the machine resets, in the same pod. shutdown: the power "
        "button is pressed, which a hanging guest ignores. poweroff: the attempt ends at once as failed, and the run strategy decides "
        "about another one. pause: the guest is paused until the verb unpause. none: only an Event reports it.",
    )


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return no errors: the schema checks everything."""
    del domain, path
    return []
