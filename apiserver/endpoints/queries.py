"""Parse query parameters with apimachinery's rules for booleans, numbers and errors.

Unknown parameters are ignored: each kubectl version adds some.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any, Final, cast

from apiserver.apis.meta.errors import BadRequest, Cause, Details, Invalid
from apiserver.apis.meta.objectmeta import MAX_MANAGER_BYTES
from apiserver.apis.meta.times import parse_duration
from apiserver.registry.generic.options import BACKGROUND, FOREGROUND, NOBODY, ORPHAN, Caller, DeleteOptions, FieldValidation, WriteOptions

Query = Mapping[str, str]

NOT_OLDER_THAN: Final = "NotOlderThan"
EXACT: Final = "Exact"
POLICIES: Final = (FOREGROUND, BACKGROUND, ORPHAN)
FIELD_VALIDATION: Final = ("", "Ignore", "Strict", "Warn")
_SHOWN: Final = 256
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,20}").fullmatch


def truth(value: str | None) -> bool:
    """Parse a boolean: absent, ``false`` and ``0`` are false, others true, even empty."""
    return value is not None and value.lower() not in {"false", "0"}


def integer(query: Query, name: str) -> int | None:
    """Return the number in parameter ``name`` (64 bits); None if absent. Raises BadRequest."""
    text = query.get(name)
    if text is None:
        return None
    number = int(text) if _NUMBER(text) else 1 << 64
    if abs(number) >= 1 << 63:
        raise BadRequest(f"unable to decode query parameter {name}: {text[:64]!r} is not an integer")
    return number


def invalid_options(kind: str, *causes: Cause) -> Invalid:
    """Return the Invalid error for options (``ListOptions``), which belong to no object."""
    listed = [f"{each.field}: {each.message}" for each in causes]
    text = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
    return Invalid(
        f'{kind}.meta.k8s.io "" is invalid: {text}',
        Details(group="meta.k8s.io", kind=kind, causes=causes),
    )


@dataclass(frozen=True, slots=True)
class ListOptions:
    """``metav1.ListOptions``, validated."""

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    match: str = ""
    watch: bool = False
    bookmarks: bool = False
    timeout_seconds: int | None = None
    send_initial_events: bool | None = None


def list_options(query: Query, *, watch: bool) -> ListOptions:
    """Parse the parameters of list, watch and deletecollection.

    Raises BadRequest for a malformed value, or ``resourceVersion`` with ``continue``; Invalid for other contradictions
    (apimachinery's ``internalversion/validation``).
    """
    initial = query.get("sendInitialEvents")
    options = ListOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        limit=max(0, integer(query, "limit") or 0),
        continue_token=query.get("continue", ""),
        resource_version=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        watch=watch,
        bookmarks=truth(query.get("allowWatchBookmarks")),
        timeout_seconds=integer(query, "timeoutSeconds"),
        send_initial_events=None if initial is None else truth(initial),
    )
    causes = tuple(_watch_causes(options) if watch else _list_causes(options))
    if causes:
        raise invalid_options("ListOptions", *causes)
    if options.continue_token and options.resource_version not in {"", "0"}:
        raise BadRequest("specifying resource version is not allowed when using continue")
    return options


def _forbidden(name: str, why: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {why}", name)


def _unsupported(name: str, value: str | list[str], supported: tuple[str, ...]) -> Cause:
    listed = ", ".join(f'"{each}"' for each in supported)
    given = json.dumps(value[:16] if isinstance(value, list) else value, separators=(",", ":"), ensure_ascii=False)
    return Cause("FieldValueNotSupported", f"Unsupported value: {given[:_SHOWN]}: supported values: {listed}", name)


def _list_causes(options: ListOptions) -> list[Cause]:
    causes = []
    if options.send_initial_events is not None:
        causes.append(_forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if not options.match:
        return causes
    if not options.resource_version:
        causes.append(_forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"))
    if options.continue_token:
        causes.append(_forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"))
    if options.match not in {EXACT, NOT_OLDER_THAN}:
        causes.append(_unsupported("resourceVersionMatch", options.match, (EXACT, NOT_OLDER_THAN, "")))
    elif options.match == EXACT and options.resource_version == "0":
        causes.append(_forbidden("resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    return causes


def _watch_causes(options: ListOptions) -> list[Cause]:
    causes = []
    if options.match and options.send_initial_events is None:
        causes.append(
            _forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
        )
    if options.send_initial_events is not None and options.match != NOT_OLDER_THAN:
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        causes.append(_forbidden("resourceVersionMatch", why))
    if options.match not in {"", NOT_OLDER_THAN}:
        causes.append(_unsupported("resourceVersionMatch", options.match, (NOT_OLDER_THAN,)))
    if options.continue_token:
        causes.append(_forbidden("continue", "continue is forbidden for watch"))
    return causes


def write_options(query: Query, dry_run: list[str], caller: Caller, *, kind: str = "UpdateOptions", apply: bool = False) -> WriteOptions:
    """Parse a write's parameters. Raises Invalid.

    ``kind`` names the options' type, ``dry_run`` has all values of ``dryRun``; ``apply`` requires ``fieldManager``, and reads ``force``.
    """
    causes = list(_dry_run_causes(dry_run))
    validation = query.get("fieldValidation", "")
    if validation not in FIELD_VALIDATION:
        causes.append(_unsupported("fieldValidation", validation, FIELD_VALIDATION))
    manager = query.get("fieldManager", "")
    if len(manager.encode(errors="surrogatepass")) > MAX_MANAGER_BYTES:
        causes.append(Cause("FieldValueTooLong", f"Too long: may not be more than {MAX_MANAGER_BYTES} bytes", "fieldManager"))
    causes += [
        _invalid("fieldManager", manager, f"invalid character U+{ord(each):04X} (at position {at})")
        for at, each in enumerate(manager[:MAX_MANAGER_BYTES])
        if not each.isprintable()
    ]
    if apply and not manager:
        causes.append(Cause("FieldValueRequired", "Required value: is required for apply patch", "fieldManager"))
    if kind == "PatchOptions" and not apply and "force" in query:
        causes.append(_forbidden("force", "may not be specified for non-apply patch"))
    if causes:
        raise invalid_options(kind, *causes)
    return WriteOptions(
        bool(dry_run), cast("FieldValidation", validation), manager, force=apply and truth(query.get("force")), caller=caller
    )


def _invalid(name: str, value: str, why: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {_quoted(value)}: {why}", name)


def _quoted(text: str) -> str:
    return json.dumps(text[:_SHOWN], ensure_ascii=False).replace("\\u00", "\\x")


def _dry_run_causes(values: list[str]) -> list[Cause]:
    return [_unsupported("dryRun", values, ("All",))] if any(each != "All" for each in values) else []


_IGNORE_READ_ERROR: Final = "ignoreStoreReadErrorWithClusterBreakingPotential"


def delete_options(query: Query, dry_run: list[str], body: dict[str, Any], caller: Caller = NOBODY) -> DeleteOptions:
    """Parse a delete's options from a non-empty body, else from the query.

    ``dry_run`` has all values of the query's ``dryRun``. Raises BadRequest for a malformed body or number, Invalid for wrong values.
    """
    if body:
        options, dry_run = _from_body(body)
        policy = body.get("propagationPolicy")
    else:
        orphan = query.get("orphanDependents")
        policy = query.get("propagationPolicy")
        options = DeleteOptions(
            policy=policy or "",
            orphan_dependents=None if orphan is None else truth(orphan),
            uid=query.get("uid") or None,
            resource_version=query.get("resourceVersion") or None,
            grace_period_seconds=integer(query, "gracePeriodSeconds"),
            ignore_read_error=truth(query.get(_IGNORE_READ_ERROR) or "false"),
            dry_run=bool(dry_run),
        )
    causes = list(_dry_run_causes(dry_run))
    if options.policy and options.orphan_dependents is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        causes.append(Cause("FieldValueInvalid", f'Invalid value: "{options.policy}": {why}', "propagationPolicy"))
    if policy is not None and policy not in POLICIES:
        causes.append(_unsupported("propagationPolicy", policy, (*POLICIES, "nil")))
    causes += _contradicting(options)
    if causes:
        raise invalid_options("DeleteOptions", *causes)
    return replace(options, caller=caller)


def _contradicting(options: DeleteOptions) -> list[Cause]:
    said = {
        "dryRun": options.dry_run,
        "propagationPolicy": options.policy,
        "orphanDependents": options.orphan_dependents is not None,
        "gracePeriodSeconds": options.grace_period_seconds is not None,
        "preconditions": options.has_preconditions or options.uid is not None or options.resource_version is not None,
    }
    if not options.ignore_read_error:
        return []
    why = "Invalid value: true: cannot be set together with ."
    return [Cause("FieldValueInvalid", why + name, _IGNORE_READ_ERROR) for name, value in said.items() if value]


def _from_body(body: dict[str, Any]) -> tuple[DeleteOptions, list[str]]:
    if body.get("kind") not in (None, "", "DeleteOptions"):
        raise BadRequest(f"the body of a delete must be DeleteOptions, not {str(body.get('kind'))[:64]}")
    preconditions = body.get("preconditions") or {}
    dry_run = body.get("dryRun") or []
    orphan = body.get("orphanDependents")
    well_typed = (
        isinstance(preconditions, dict)
        and isinstance(dry_run, list)
        and all(isinstance(each, str) for each in dry_run)
        and isinstance(orphan, bool | None)
        and isinstance(body.get(_IGNORE_READ_ERROR), bool | None)
        and all(isinstance(preconditions.get(key), str | None) for key in ("uid", "resourceVersion"))
        and isinstance(body.get("propagationPolicy"), str | None)
        and type(body.get("gracePeriodSeconds", 0)) in {int, NoneType}  # in Python a boolean is an int
    )
    if not well_typed:
        raise BadRequest("the body of the delete cannot be read as DeleteOptions: a field has a wrong type")
    options = DeleteOptions(
        policy=body.get("propagationPolicy") or "",
        orphan_dependents=orphan,
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        has_preconditions=body.get("preconditions") is not None,
        grace_period_seconds=body.get("gracePeriodSeconds"),
        ignore_read_error=bool(body.get(_IGNORE_READ_ERROR)),
        dry_run=bool(dry_run),
    )
    return options, dry_run


def timeout(query: Query, limit: float) -> float:
    """Return the client's time limit in seconds, at most ``limit``; ``limit`` if unset or not above 0. Raises BadRequest."""
    text = query.get("timeout")
    if not text:
        return limit
    try:
        seconds = parse_duration(text).total_seconds()
    except ValueError as error:
        raise BadRequest(f"invalid timeout specified in the request URL - {str(error)[:100]}") from None
    return min(seconds, limit) if seconds > 0 else limit
