"""Authorization checks: ``authorizer.group('').resource('pods').check('list').allowed()``.

Expressions cannot wait, so a check without answer raises :class:`Undecided`; :func:`apiserver.cel.asking.evaluate` adds
the answer to ``Authorizer.answers`` and repeats.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar, Final

from apiserver.apis.meta import names
from apiserver.apis.meta.users import ANONYMOUS, User
from apiserver.cel import cost
from apiserver.cel.frame import Frame
from apiserver.cel.registry import NOMINAL, Library
from apiserver.cel.values import CelError, Opaque

LIBRARY: Final = Library()
_member = LIBRARY.member


@dataclass(frozen=True, slots=True)
class Question:
    """Whether ``user`` may use ``verb`` on a path or a resource."""

    user: str
    groups: tuple[str, ...]
    uid: str
    extra: tuple[tuple[str, tuple[str, ...]], ...]
    verb: str
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""
    who: User = field(default=ANONYMOUS, compare=False)
    """For authorizers that compare identity."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The authorizer's answer to a Question."""

    allowed: bool
    reason: str = ""
    error: str = ""


class Undecided(Exception):
    """An evaluation needs the answer to ``question`` first."""

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self.question = question


@dataclass(slots=True, eq=False)
class Authorizer(Opaque):
    """The user to check, and the answers that are known for the request."""

    type_name: ClassVar[str] = "kubernetes.authorization.Authorizer"
    user: User
    answers: dict[Question, Answer] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class PathCheck(Opaque):
    """A check of a path, before its verb."""

    type_name: ClassVar[str] = "kubernetes.authorization.PathCheck"
    authorizer: Authorizer
    path: str


@dataclass(slots=True, eq=False)
class GroupCheck(Opaque):
    """A check of a resource, started with its group."""

    type_name: ClassVar[str] = "kubernetes.authorization.GroupCheck"
    authorizer: Authorizer
    group: str


@dataclass(slots=True, eq=False)
class ResourceCheck(Opaque):
    """A check of a resource, before its verb."""

    type_name: ClassVar[str] = "kubernetes.authorization.ResourceCheck"
    authorizer: Authorizer
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""


@dataclass(slots=True, eq=False)
class Decision(Opaque):
    """A check's answer, as CEL value."""

    type_name: ClassVar[str] = "kubernetes.authorization.Decision"
    answer: Answer


@_member("path", Authorizer, str)
def _path(frame: Frame, authorizer: Authorizer, path: str) -> PathCheck:
    frame.cost += NOMINAL
    if not path.strip():
        raise CelError("path must not be empty")
    return PathCheck(authorizer, path)


@_member("group", Authorizer, str)
def _group(frame: Frame, authorizer: Authorizer, group: str) -> GroupCheck:
    frame.cost += NOMINAL
    return GroupCheck(authorizer, group)


@_member("serviceAccount", Authorizer, str, str)
def _service_account(frame: Frame, authorizer: Authorizer, namespace: str, name: str) -> Authorizer:
    frame.cost += NOMINAL
    if names.subdomain_errors(name):
        raise CelError("Invalid service account name")
    if names.label_errors(namespace):
        raise CelError("Invalid service account namespace")
    return Authorizer(_account(namespace, name), authorizer.answers)


@lru_cache(maxsize=256)
def _account(namespace: str, name: str) -> User:
    return User(f"system:serviceaccount:{namespace}:{name}", ("system:serviceaccounts", f"system:serviceaccounts:{namespace}"))


@_member("resource", GroupCheck, str)
def _resource(frame: Frame, check: GroupCheck, resource: str) -> ResourceCheck:
    frame.cost += NOMINAL
    if not resource.strip():
        raise CelError("resource must not be empty")
    return ResourceCheck(check.authorizer, check.group, resource)


@_member("subresource", ResourceCheck, str)
def _subresource(frame: Frame, check: ResourceCheck, subresource: str) -> ResourceCheck:
    frame.cost += NOMINAL
    return replace(check, subresource=subresource)


@_member("namespace", ResourceCheck, str)
def _namespace(frame: Frame, check: ResourceCheck, namespace: str) -> ResourceCheck:
    frame.cost += NOMINAL
    return replace(check, namespace=namespace)


@_member("name", ResourceCheck, str)
def _name(frame: Frame, check: ResourceCheck, name: str) -> ResourceCheck:
    frame.cost += NOMINAL
    return replace(check, name=name)


def _selector(text: str) -> int:
    return cost.LIST + cost.traversal(len(text)) + -(-len(text) // 2) * (cost.LIST + cost.MESSAGE)


@_member("fieldSelector", ResourceCheck, str)
def _field_selector(frame: Frame, check: ResourceCheck, selector: str) -> ResourceCheck:
    frame.charge(_selector(selector))
    return replace(check, field_selector=selector)


@_member("labelSelector", ResourceCheck, str)
def _label_selector(frame: Frame, check: ResourceCheck, selector: str) -> ResourceCheck:
    frame.charge(_selector(selector))
    return replace(check, label_selector=selector)


def _ask(frame: Frame, authorizer: Authorizer, verb: str, check: ResourceCheck | None, path: str) -> Decision:
    frame.charge(cost.AUTHORIZATION)
    user = authorizer.user
    question = Question(user.name, tuple(user.groups), user.uid, tuple(sorted(user.extra.items())), verb, path, who=user)
    if check is not None:
        question = replace(
            question,
            group=check.group,
            resource=check.resource,
            subresource=check.subresource,
            namespace=check.namespace,
            name=check.name,
            field_selector=check.field_selector,
            label_selector=check.label_selector,
        )
    if (answer := authorizer.answers.get(question)) is None:
        raise Undecided(question)
    return Decision(answer)


@_member("check", PathCheck, str)
def _check_path(frame: Frame, check: PathCheck, verb: str) -> Decision:
    return _ask(frame, check.authorizer, verb, None, check.path)


@_member("check", ResourceCheck, str)
def _check_resource(frame: Frame, check: ResourceCheck, verb: str) -> Decision:
    return _ask(frame, check.authorizer, verb, check, "")


@_member("allowed", Decision)
def _allowed(frame: Frame, decision: Decision) -> bool:
    frame.cost += NOMINAL
    return decision.answer.allowed


@_member("reason", Decision)
def _reason(frame: Frame, decision: Decision) -> str:
    frame.cost += NOMINAL
    return decision.answer.reason


@_member("errored", Decision)
def _errored(frame: Frame, decision: Decision) -> bool:
    frame.cost += NOMINAL
    return bool(decision.answer.error)


@_member("error", Decision)
def _error(frame: Frame, decision: Decision) -> str:
    frame.cost += NOMINAL
    return decision.answer.error
