"""What a client may say about a write, checked and typed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

FieldValidation = Literal["Ignore", "Warn", "Strict"]

FOREGROUND: Final = "Foreground"
BACKGROUND: Final = "Background"
ORPHAN: Final = "Orphan"


def _nobody(_: str) -> None:
    """Drop a warning."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What create, update, patch and the verbs take."""

    dry_run: bool = False
    """Do everything but the write itself."""
    field_validation: FieldValidation = "Warn"
    """Whether unknown and duplicate fields are dropped silently, with a warning, or refused."""
    warn: Callable[[str], None] = _nobody
    """Takes what the client should be told although the write succeeds; saying it twice is harmless."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """``metav1.DeleteOptions``. ``gracePeriodSeconds`` is taken and means nothing: no resource here has a grace period."""

    policy: str = ""
    """``Foreground``, ``Background``, ``Orphan``, or empty: what the object's finalizers say already."""
    orphan_dependents: bool | None = None
    uid: str = ""
    """Precondition."""
    resource_version: str = ""
    """Precondition."""
    dry_run: bool = False
