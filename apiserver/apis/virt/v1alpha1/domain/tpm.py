"""Trusted Platform Module: ``devices.tpm``."""

from __future__ import annotations

from pydantic import Field

from apiserver.apis.meta.schema import Model
from apiserver.apis.meta.validation import FieldError, Path
from apiserver.apis.virt.v1alpha1.domain.rules import Object


class TPM(Model):
    """An emulated Trusted Platform Module, version 2.0. Its endorsement keys have no certificate of a manufacturer."""

    persistent: bool | None = Field(
        None,
        description="Keeps the state in the claim of firmware.persistentState; otherwise it is lost when the machine is off. Default "
        "false.",
    )


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return no errors: ``firmware`` validates the claim for its state."""
    del domain, path
    return []
