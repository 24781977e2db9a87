"""Compares two answers member by member, and with the step's expectations.

A member is named by its path without list positions: ``details.causes.field`` of a Status, ``events.object.spec`` of a watch's events.
``body`` is the whole; ``HTTP status`` and ``header content-type`` are next to it. A member that one side lacks is ``only ours:
details.name`` or ``only the reference: details.name``. Items of only one list are ``more`` of it, by type if they have one: ``only ours:
events.more.BOOKMARK``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.reference_server.asking import Answer
from tests.reference_server.rows import Step

ABSENT: Final = object()
"""Stands for a member that one side lacks; null is a value."""
REASONS: Final = {
    400: "BadRequest",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    422: "Invalid",
}
"""Of a Status, by code: k8s.io/apimachinery/pkg/api/errors."""


@dataclass(frozen=True)
class Difference:
    member: str
    reference: Any
    ours: Any

    @property
    def is_words(self) -> bool:
        return self.member.rpartition(".")[2] == "message" and isinstance(self.reference, str) and isinstance(self.ours, str)

    @property
    def name(self) -> str:
        if self.reference is ABSENT:
            return f"only ours: {self.member}"
        return f"only the reference: {self.member}" if self.ours is ABSENT else self.member

    def __str__(self) -> str:
        return f"{self.name}: reference {_shown(self.reference)}, ours {_shown(self.ours)}"


def _shown(value: Any) -> str:
    return "nothing" if value is ABSENT else json.dumps(value)[:300]


def differences(reference: Any, ours: Any, member: str = "") -> Iterator[Difference]:
    if isinstance(reference, dict) and isinstance(ours, dict):
        for name in sorted(reference.keys() | ours.keys()):
            yield from differences(reference.get(name, ABSENT), ours.get(name, ABSENT), f"{member}.{name}" if member else name)
    elif isinstance(reference, list) and isinstance(ours, list):
        for one, other in zip(reference, ours, strict=False):
            yield from differences(one, other, member)
        shorter = min(len(reference), len(ours))
        yield from (Difference(_surplus(member, each), each, ABSENT) for each in reference[shorter:])
        yield from (Difference(_surplus(member, each), ABSENT, each) for each in ours[shorter:])
    elif _is_empty_details(reference, ours, member):
        return
    elif type(reference) is not type(ours) or reference != ours:
        yield Difference(member or "body", reference, ours)


def _is_empty_details(reference: Any, ours: Any, member: str) -> bool:
    """Return whether only Go has ``details``, and empty: Go writes these depending on the error (docs/differences.md)."""
    return member.rpartition(".")[2] == "details" and reference == {} and ours is ABSENT


def _surplus(member: str, item: Any) -> str:
    kind = item.get("type") if isinstance(item, dict) else None
    return ".".join(each for each in (member, "more", kind) if each)


def compare(reference: Answer, ours: Answer) -> list[Difference]:
    found = list(differences(reference.code, ours.code, "HTTP status"))
    for name in sorted(reference.headers.keys() | ours.headers.keys()):
        found += differences(reference.headers.get(name, ABSENT), ours.headers.get(name, ABSENT), f"header {name}")
    return found + list(differences(reference.body, ours.body))


def judge(step: Step, reference: Answer, ours: Answer) -> list[str]:
    if step.code:
        return list(_decided(step, reference, ours))
    found = compare(reference, ours)
    wrong = [str(each) for each in found if not (step.differs and each.is_words) and not _is_of(each, step.beside)]
    if step.differs and not any(each.is_words for each in found):
        wrong.append(f"the words are the same, and were to differ: {step.differs}")
    named = ((member, why) for member, why in step.beside.items() if not any(_is_of(each, (member,)) for each in found))
    return wrong + [f"{member} is the same, and was to differ: {why}" for member, why in named]


def _is_of(difference: Difference, members: Iterable[str]) -> bool:
    return any(difference.name == each or difference.name.startswith(f"{each}.") for each in members)


def _decided(step: Step, reference: Answer, ours: Answer) -> Iterator[str]:
    if ours.code != step.code:
        yield f"HTTP status: {ours.code} where {step.code} was decided ({step.differs})"
    if reference.code == step.code:
        yield f"HTTP status: the reference's is {reference.code}, too, and was to differ: {step.differs}"
    if ours.code not in REASONS or step.method == "HEAD":
        return
    if ours.code == 404 and isinstance(ours.body, dict) and list(ours.body) == ["paths"]:
        return  # for a path that is not served; only the API returns a Status
    body = ours.body if isinstance(ours.body, dict) else {}
    expected = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": REASONS[ours.code], "code": ours.code}
    for name, value in expected.items():
        if body.get(name) != value:
            yield f"{name}: ours {_shown(body.get(name, ABSENT))}, where a Status of {ours.code} says {_shown(value)}"
    if not body.get("message"):
        yield "message: ours says nothing"
    causes = (body.get("details") or {}).get("causes") or []
    if ours.code == 422 and not (causes and all(each.get("field") and each.get("reason") for each in causes)):
        yield f"details.causes: ours {_shown(causes)}, where each is to name a field and a reason"
