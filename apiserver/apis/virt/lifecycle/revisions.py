"""Revisions of the template of a VirtualMachineReplicaSet with ordinals: virt-api records each in ``status.revisions``."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from apiserver.apis.virt.kinds import dig_replica_set
from apiserver.apis.virt.lifecycle import ordinals

Object = Mapping[str, Any]

LABEL: Final = "kubevirt.io/revision"
"""On a machine: the name of its template's revision."""
RESTARTED_AT: Final = "kubevirt.io/restartedAt"
"""Annotation of a template: a change restarts the machines."""
CHANGE_CAUSE: Final = "kubernetes.io/change-cause"
ROLLING_UPDATE: Final = "RollingUpdate"
ON_DELETE: Final = "OnDelete"
DEFAULT_LIMIT: Final = 10
MAX_BYTES: Final = 128 << 10
"""Limit for the older templates together; etcd limits an object to 1.5 MiB."""
_DIGITS: Final = 10
_PERCENTAGE: Final = re.compile("0*(100|[1-9][0-9]?)%")


def name_of(template: Object) -> str:
    """Return the name of a template's revision, a hash."""
    return hashlib.sha256(_text(template)).hexdigest()[:_DIGITS]


def of_set(replica_set: Object) -> list[dict[str, Any]]:
    """Return ``status.revisions``, the newest last; empty without ordinals."""
    found: list[Any] = dig_replica_set(replica_set, "status", "revisions") or []
    return found


def newest(replica_set: Object) -> str:
    """Return the name of the newest revision; empty without one."""
    found = of_set(replica_set)
    return str(found[-1]["name"]) if found else ""


def current(replica_set: Object) -> str:
    """Return the name of the revision that all machines last had; the newest if unset."""
    return str(dig_replica_set(replica_set, "status", "currentRevision") or newest(replica_set))


def record(replica_set: dict[str, Any]) -> None:
    """Make the template the newest of ``status.revisions``, in place, and drop old ones beyond the limit; only for a set with ordinals."""
    if not ordinals.has_ordinals(replica_set):
        return
    template, kept = _plain(replica_set["spec"]["template"]), of_set(replica_set)
    if not kept or _plain(kept[-1]["template"]) != template:
        name = next((str(each["name"]) for each in kept if _plain(each["template"]) == template), name_of(template))
        added = {"name": name, "revision": max((each["revision"] for each in kept), default=0) + 1, "template": deepcopy(template)}
        if cause := (dig_replica_set(replica_set, "metadata", "annotations") or {}).get(CHANGE_CAUSE):
            added["changeCause"] = cause
        kept = [*(each for each in kept if each["name"] != name), added]
    status = replica_set.setdefault("status", {})
    status.setdefault("currentRevision", kept[0]["name"])
    limit = dig_replica_set(replica_set, "spec", "revisionHistoryLimit")
    status["revisions"] = _limited(kept, current(replica_set), DEFAULT_LIMIT if limit is None else limit)


def _limited(found: list[dict[str, Any]], used: str, limit: int) -> list[dict[str, Any]]:
    """Return the newest revision, that in use, and the last ``limit`` others that fit into ``MAX_BYTES``."""
    size, others, kept = 0, 0, found[-1:]
    for each in reversed(found[:-1]):
        size += len(_text(each["template"]))
        if each["name"] == used:
            kept.insert(0, each)
        elif others < limit and size <= MAX_BYTES:
            others += 1
            kept.insert(0, each)
    return kept


def _plain(template: Object) -> Object:
    """Return only the template's spec and its labels and annotations that are not empty; an undo may leave empty ones."""
    given = template.get("metadata") or {}
    return {"metadata": {key: given[key] for key in ("labels", "annotations") if given.get(key)}, "spec": template["spec"]}


def _text(template: Object) -> bytes:
    return json.dumps(_plain(template), sort_keys=True, separators=(",", ":")).encode(errors="surrogatepass")


def wanted_by(replica_set: Object, ordinal: int) -> str:
    """Return the name of the revision for the machine with this ordinal; empty without revisions."""
    return current(replica_set) if ordinal < partition(replica_set) else newest(replica_set)


def for_ordinal(replica_set: Object, ordinal: int) -> tuple[str, Object]:
    """Return name and template of the revision for a machine: below the partition the current one, else the newest.

    If ``status`` lacks it, return those of the set's template.
    """
    wanted = wanted_by(replica_set, ordinal)
    template = replica_set["spec"]["template"]
    return next(
        ((str(each["name"]), each["template"]) for each in of_set(replica_set) if each["name"] == wanted), (name_of(template), template)
    )


def template_of(replica_set: Object, name: str) -> Object:
    """Return the template of the revision with this name; empty if unknown."""
    return next((each["template"] for each in of_set(replica_set) if each["name"] == name), {})


def strategy_of(replica_set: Object) -> str:
    """Return ``spec.updateStrategy.type``: RollingUpdate, also if unset, or OnDelete."""
    return str(dig_replica_set(replica_set, "spec", "updateStrategy", "type") or ROLLING_UPDATE)


def partition(replica_set: Object) -> int:
    """Return the lowest ordinal that a RollingUpdate changes; 0 if unset."""
    return int(dig_replica_set(replica_set, "spec", "updateStrategy", "rollingUpdate", "partition") or 0)


def max_unavailable(replica_set: Object) -> int:
    """Return how many machines may be unavailable during a RollingUpdate; 1 if unset.

    A percentage of ``spec.replicas`` is rounded down, but to at least 1, as for a StatefulSet.
    """
    given = dig_replica_set(replica_set, "spec", "updateStrategy", "rollingUpdate", "maxUnavailable") or 1
    if isinstance(given, str):
        return max(len(ordinals.wanted(replica_set)) * (percentage(given) or 0) // 100, 1)
    return given


def percentage(text: str) -> int | None:
    """Return the number in a percentage from ``1%`` to ``100%``; None for other text."""
    found = _PERCENTAGE.fullmatch(text)
    return int(found[1]) if found else None
