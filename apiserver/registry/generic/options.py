"""Options of writes that a client may give, checked and typed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from apiserver.apis.meta.objectmeta import MAX_MANAGER_BYTES
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.users import ANONYMOUS, User
from apiserver.apis.meta.validation import FieldError

FieldValidation = Literal["", "Ignore", "Warn", "Strict"]

FOREGROUND: Final = "Foreground"
BACKGROUND: Final = "Background"
ORPHAN: Final = "Orphan"


def _nobody(*_: object) -> None:
    """Drop what nobody listens to."""


@dataclass(slots=True, eq=False)  # made for each write, as WriteOptions are; frozen, that takes three times as long
class Caller:
    """The client of a request, and ways to tell it, and the audit log, more than the answer says. Never changed."""

    user: User = ANONYMOUS
    agent: str = ""
    """The client's ``User-Agent``."""
    warn: Callable[[str], None] = _nobody
    """Takes what the client should be told although the write succeeds; saying it twice is harmless."""
    annotate: Callable[[str, str], None] = _nobody
    """Takes an annotation (key, value) for the audit log."""
    wait: Callable[[str, float], None] = _nobody
    """Takes for whom (``mutating-webhook``) the request waited, and how many seconds."""


NOBODY: Final = Caller()


@dataclass(slots=True)
class WriteOptions:
    """Options of create, update, patch and the verbs. Never changed, once the store has them."""

    dry_run: bool = False
    """Do everything but the write itself."""
    field_validation: FieldValidation = ""
    """Treatment of unknown and duplicate fields: dropped silently, dropped with a warning (which is what nothing means), or refused."""
    field_manager: str = ""
    """As given; what stands for it when it is not: :attr:`manager`."""
    force: bool = False
    """Server-side apply takes fields from other managers."""
    caller: Caller = NOBODY
    superfluous: tuple[FieldError, ...] = ()
    """Faults in the body's text beside its value: keys given twice, unknown fields of a JSON patch. Treated as unknown fields are."""

    @property
    def manager(self) -> str:
        """Manager of the fields: ``fieldManager``, or the client's name up to its first ``/`` (Go: ``managerOrUserAgent``)."""
        if self.field_manager:
            return self.field_manager
        name = self.caller.agent.partition("/")[0]
        if not name.isprintable():
            name = "".join(each for each in name if each.isprintable())
        return name[:MAX_MANAGER_BYTES] if name.isascii() else name.encode()[:MAX_MANAGER_BYTES].decode(errors="ignore")

    def to_json(self, operation: str) -> Object:
        """Return the options as admission is shown them: those of a patch as of the create or update that it amounts to."""
        shown: Object = {"kind": "CreateOptions" if operation == "CREATE" else "UpdateOptions", "apiVersion": "meta.k8s.io/v1"}
        if self.dry_run:
            shown["dryRun"] = ["All"]
        if self.field_manager:
            shown["fieldManager"] = self.field_manager
        if self.field_validation:
            shown["fieldValidation"] = self.field_validation
        return shown


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """``metav1.DeleteOptions``."""

    policy: str = ""
    """``Foreground``, ``Background``, ``Orphan``, or empty: what the object's finalizers say already."""
    orphan_dependents: bool | None = None
    uid: str | None = None
    """Precondition; the empty one holds for no object."""
    resource_version: str | None = None
    """Precondition; the empty one holds for no object."""
    has_preconditions: bool = False
    """The client gave some, be it none in braces, as client-go does."""
    grace_period_seconds: int | None = None
    """For admission alone: no resource here has a grace period."""
    ignore_read_error: bool = False
    """Delete it though it cannot be decoded (``ignoreStoreReadErrorWithClusterBreakingPotential``)."""
    dry_run: bool = False
    caller: Caller = NOBODY

    def to_json(self, operation: str = "DELETE") -> Object:
        """Return the options as admission is shown them."""
        del operation
        shown: Object = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
        if self.grace_period_seconds is not None:
            shown["gracePeriodSeconds"] = self.grace_period_seconds
        preconditions = {"uid": self.uid, "resourceVersion": self.resource_version}
        given = {key: value for key, value in preconditions.items() if value is not None}
        if given or self.has_preconditions:
            shown["preconditions"] = given
        if self.orphan_dependents is not None:
            shown["orphanDependents"] = self.orphan_dependents
        if self.policy:
            shown["propagationPolicy"] = self.policy
        if self.ignore_read_error:
            shown["ignoreStoreReadErrorWithClusterBreakingPotential"] = True
        if self.dry_run:
            shown["dryRun"] = ["All"]
        return shown
