"""Validated options of writes."""

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
    """Ignore the call."""


@dataclass(slots=True, eq=False)  # freezing would triple the time
class Caller:
    """A request's client. Immutable."""

    user: User = ANONYMOUS
    agent: str = ""
    warn: Callable[[str], None] = _nobody
    """Adds a warning to a successful answer."""
    annotate: Callable[[str, str], None] = _nobody
    """Adds an annotation (key, value) to the log."""
    wait: Callable[[str, float], None] = _nobody
    """Adds seconds waited for a component (``mutating-webhook``)."""


NOBODY: Final = Caller()


@dataclass(slots=True)
class WriteOptions:
    """Options of create, update, patch and the verbs. Immutable in the store."""

    dry_run: bool = False
    field_validation: FieldValidation = ""
    """Drop unknown and duplicate fields silently, or with a warning (also if empty), or refuse them."""
    field_manager: str = ""
    """As given; :attr:`manager` has the default."""
    force: bool = False
    """Takes fields from other managers."""
    caller: Caller = NOBODY
    superfluous: tuple[FieldError, ...] = ()
    """Repeated keys, unknown members of a JSON patch."""

    @property
    def manager(self) -> str:
        """Field manager: ``fieldManager``, or the User-Agent's printable text before ``/``, cut (Go: ``managerOrUserAgent``)."""
        if self.field_manager:
            return self.field_manager
        name = self.caller.agent.partition("/")[0]
        if not name.isprintable():
            name = "".join(each for each in name if each.isprintable())
        return name[:MAX_MANAGER_BYTES] if name.isascii() else name.encode()[:MAX_MANAGER_BYTES].decode(errors="ignore")

    def to_json(self, operation: str) -> Object:
        """Return the options as JSON for admission; a patch counts as its create or update."""
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
    """Validated options of a deletion (``metav1.DeleteOptions``)."""

    policy: str = ""
    """``Foreground``, ``Background``, ``Orphan``, or empty: keep the finalizers."""
    orphan_dependents: bool | None = None
    uid: str | None = None
    """Precondition; an empty one never holds."""
    resource_version: str | None = None
    """As ``uid``."""
    has_preconditions: bool = False
    """Possibly empty, as in client-go."""
    grace_period_seconds: int | None = None
    """Only for admission."""
    ignore_read_error: bool = False
    """Delete even an undecodable object (``ignoreStoreReadErrorWithClusterBreakingPotential``)."""
    dry_run: bool = False
    caller: Caller = NOBODY

    def to_json(self, operation: str = "DELETE") -> Object:
        """Return the options as JSON for admission, the same for each ``operation``."""
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
