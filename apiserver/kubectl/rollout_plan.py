"""Rollouts of sets: progress, history and edits, as ``kubectl rollout``. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object, annotations_of, condition, generation_of, name_of
from apiserver.apis.virt.kinds import dig_replica_set
from apiserver.apis.virt.lifecycle import ordinals, replica_sets, revisions
from apiserver.apis.virt.places.resources import REPLICA_SETS
from apiserver.kubectl import guestinfo
from apiserver.kubectl.messages import Failure

KIND: Final = REPLICA_SETS.kind.lower()
TITLE: Final = f"{KIND}.{REPLICA_SETS.group}"
NONE: Final = "<none>"
MAX_TEXT: Final = 1000
"""Of a message or a change's cause."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What ``rollout status`` prints, and whether it ends."""

    text: str
    done: bool = False


def progress(replica_set: Object, revision: int = 0) -> Progress:
    """Return the progress of a set's rollout. Raises Failure for type OnDelete, or if ``revision`` is not the newest."""
    has_ordinals, status = ordinals.has_ordinals(replica_set), _status_of(replica_set)
    if has_ordinals and revisions.strategy_of(replica_set) != revisions.ROLLING_UPDATE:
        raise Failure(f"error: rollout status is only available for {revisions.ROLLING_UPDATE} strategy type")
    if revision and revision != (newest := newest_number(replica_set)):
        raise Failure(f"error: desired revision ({revision}) is different from the running revision ({newest})")
    if int(status.get("observedGeneration") or 0) < generation_of(replica_set):
        return Progress(f"Waiting for {KIND} spec update to be observed...")
    lowest, updated = revisions.partition(replica_set), int(status.get("updatedReplicas") or 0)
    wanted = ordinals.wanted(replica_set)
    concerned = max(wanted.stop - max(wanted.start, lowest), 0) if has_ordinals else 0
    is_settled = condition(status.get("conditions"), replica_sets.RECONCILING) is None
    if not is_settled or updated < concerned:  # without a partition, the condition has the count
        return _waiting(replica_set, *([f"{updated} out of {concerned} machines have been updated"] if lowest or is_settled else []))
    if lowest:
        return Progress(f"partitioned roll out complete: {concerned} machines have been updated", done=True)
    limit = "" if has_ordinals else "; without spec.ordinals, only new machines have the newest template"
    return Progress(f'{KIND} "{name_of(replica_set)}" successfully rolled out{limit}', done=True)


def newest_number(replica_set: Object) -> int:
    """Return the number of the template's revision; 0 without revisions."""
    return max((int(each["revision"]) for each in revisions.of_set(replica_set)), default=0)


def _waiting(replica_set: Object, *counts: str) -> Progress:
    found = _status_of(replica_set).get("conditions")
    kinds = (replica_sets.REPLICA_PAUSED, replica_sets.REPLICA_FAILURE, replica_sets.RECONCILING)
    messages = [str((condition(found, each) or {}).get("message") or "") for each in kinds]
    told = "; ".join([*counts, *(one_line(each, MAX_TEXT) for each in messages if each)])
    return Progress(f'Waiting for {KIND} "{name_of(replica_set)}" rollout to finish: {told}...')


def _status_of(replica_set: Object) -> Mapping[str, Any]:
    found: Mapping[str, Any] = dig_replica_set(replica_set, "status") or {}
    return found


def history(replica_set: Object) -> str:
    """Return the table of a set's revisions. Raises Failure without any, as of a set without ordinals."""
    rows = [
        (str(each["revision"]), str(each["name"]), one_line(str(each.get("changeCause") or NONE), MAX_TEXT)) for each in _known(replica_set)
    ]
    return "\n".join([f"{TITLE}/{name_of(replica_set)}", *guestinfo.aligned([("REVISION", "NAME", "CHANGE-CAUSE"), *rows])])


def details(replica_set: Object, number: int) -> str:
    """Return one revision's template as text. Raises Failure if it is unknown."""
    found = _find(replica_set, number)
    text = yaml.safe_dump(found["template"], sort_keys=False, allow_unicode=False).rstrip()
    return f"{TITLE}/{name_of(replica_set)} with revision #{number}\nTemplate:\n" + "\n".join(f"  {line}" for line in text.splitlines())


def undone(replica_set: Object, number: int = 0) -> tuple[Object, int]:
    """Return the set with the template and change cause of revision ``number`` (0: the last but one), and that revision. Raises Failure."""
    _refuse_paused(replica_set, "rollback")
    known = _known(replica_set)
    if not number and len(known) < 2:
        raise Failure("error: no last revision to roll back to")
    found = _find(replica_set, number) if number else known[-2]
    annotations = {key: value for key, value in annotations_of(replica_set).items() if key != revisions.CHANGE_CAUSE}
    if cause := found.get("changeCause"):
        annotations[revisions.CHANGE_CAUSE] = cause
    undone = _with(replica_set, {"template": found["template"]})
    return {**undone, "metadata": {**undone["metadata"], "annotations": annotations}}, int(found["revision"])


def restarted(replica_set: Object, moment: str) -> Object:
    """Return the set with an annotation in its template, the time ``moment``, which restarts the machines. Raises Failure."""
    if not ordinals.has_ordinals(replica_set):
        why = "has no spec.ordinals, so rollout cannot restart its machines"
        raise Failure(f"error: {_named(replica_set)} {why}; restart each one: kubectl virt restart NAME")
    _refuse_paused(replica_set, "restart")
    template = replica_set["spec"]["template"]
    given = template.get("metadata") or {}
    annotations = {**(given.get("annotations") or {}), revisions.RESTARTED_AT: moment}
    return _with(replica_set, {"template": {**template, "metadata": {**given, "annotations": annotations}}})


def paused(replica_set: Object, *, wanted: bool) -> Object:
    """Return a copy of the set with its rollout paused, or resumed (not ``wanted``). Raises Failure if it is already so."""
    if is_paused(replica_set) is wanted:
        raise Failure(f"error: {_named(replica_set)} is {'already' if wanted else 'not'} paused")
    return _with(replica_set, {"paused": wanted})


def is_paused(replica_set: Object) -> bool:
    """Return whether the set updates no machines until it is resumed."""
    return bool(dig_replica_set(replica_set, "spec", "paused"))


def _refuse_paused(replica_set: Object, what: str) -> None:
    if is_paused(replica_set):
        raise Failure(f"error: {_named(replica_set)}: can't {what} a paused set; first: kubectl virt rollout resume {name_of(replica_set)}")


def _named(replica_set: Object) -> str:
    return f'{REPLICA_SETS.plural}.{REPLICA_SETS.group} "{name_of(replica_set)}"'


def _with(replica_set: Object, spec: Object) -> Object:
    others = {key: value for key, value in replica_set.items() if key != "status"}
    return {**others, "spec": {**replica_set["spec"], **spec}}


def _known(replica_set: Object) -> Sequence[Mapping[str, Any]]:
    if not (found := revisions.of_set(replica_set)):
        raise Failure(f"error: no rollout history found for {_named(replica_set)}: only sets with spec.ordinals have one")
    return found


def _find(replica_set: Object, number: int) -> Mapping[str, Any]:
    if found := [each for each in _known(replica_set) if int(each["revision"]) == number]:
        return found[0]
    raise Failure(f"error: unable to find specified revision {number} in history")
