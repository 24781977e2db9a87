"""The audit policy (``audit.k8s.io/v1`` Policy): how much to record of each request. Pure.

The first matching rule decides; without one, nothing is recorded. Matching follows
``k8s.io/apiserver/pkg/audit/policy/checker.go``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.users import User
from apiserver.endpoints.requestinfo import RequestInfo

API_VERSION: Final = "audit.k8s.io/v1"
_GROUP: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_RULE: Final = {
    "level", "users", "userGroups", "verbs", "resources", "namespaces", "nonResourceURLs", "omitStages", "omitManagedFields",
}  # fmt: skip


class Level(IntEnum):
    """Level of detail; each level includes the one before it."""

    NONE = 0
    METADATA = 1
    REQUEST = 2
    REQUEST_RESPONSE = 3

    @property
    def text(self) -> str:
        """The name of the level in events."""
        return _TEXTS[self]


_TEXTS: Final = {Level.NONE: "None", Level.METADATA: "Metadata", Level.REQUEST: "Request", Level.REQUEST_RESPONSE: "RequestResponse"}
_LEVELS: Final = {text: level for level, text in _TEXTS.items()}


class Stage:
    """Stages of a request, as plain strings because enumeration members are slow to hash."""

    REQUEST_RECEIVED: Final = "RequestReceived"
    RESPONSE_STARTED: Final = "ResponseStarted"
    RESPONSE_COMPLETE: Final = "ResponseComplete"
    PANIC: Final = "Panic"


STAGES: Final = (Stage.REQUEST_RECEIVED, Stage.RESPONSE_STARTED, Stage.RESPONSE_COMPLETE, Stage.PANIC)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the policy records of one request."""

    level: Level
    omit_stages: frozenset[str] = frozenset()
    omit_managed_fields: bool = False
    head: str = ""
    """Start of its events, up to the id."""

    def __post_init__(self) -> None:
        head = f'{{"kind":"Event","apiVersion":"{API_VERSION}","level":"{self.level.text}","auditID":'
        object.__setattr__(self, "head", head)


NOTHING: Final = Verdict(Level.NONE)


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of one group; an empty list means all of them."""

    group: str
    resources: tuple[str, ...]
    names: tuple[str, ...]

    def matches(self, info: RequestInfo) -> bool:
        """Return whether the request concerns one of these resources."""
        if self.group not in {info.group, "*"}:
            return False
        if not self.resources:
            return True
        if self.names and info.name not in self.names:
            return False
        full = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
        wanted = {full, "*", f"{info.resource}/*"} | ({f"*/{info.subresource}"} if info.subresource else set())
        return any(each in wanted for each in self.resources)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; an empty field matches everything."""

    verdict: Verdict
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    resources: tuple[Resources, ...] = ()
    namespaces: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def matches(self, user: User, info: RequestInfo) -> bool:
        """Return whether the rule matches the request."""
        if self.users and user.name not in self.users:
            return False
        if self.groups and not any(each in self.groups for each in user.groups):
            return False
        if self.verbs and info.verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            return self._matches_resource(info)
        return not self.paths or (not info.is_resource and any(_path_matches(info.path, each) for each in self.paths))

    def _matches_resource(self, info: RequestInfo) -> bool:
        if not info.is_resource or (self.namespaces and info.namespace not in self.namespaces):
            return False
        return not self.resources or any(each.matches(info) for each in self.resources)


class Policy:
    """An audit policy: an ordered list of rules."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules

    def verdict(self, user: User, info: RequestInfo) -> Verdict:
        """Return the verdict of the first rule that matches the request."""
        for each in self.rules:
            if each.matches(user, info):
                return each.verdict
        return NOTHING


def _path_matches(path: str, pattern: str) -> bool:
    return pattern in {"*", path} or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


def parse(document: Any) -> Policy:  # noqa: ANN401 - a YAML document
    """Parse a policy document.

    Raises:
        ValueError: the policy is invalid; the message names each wrong field.
    """
    if not isinstance(document, dict) or document.get("kind") != "Policy" or document.get("apiVersion") != API_VERSION:
        raise ValueError(f"the audit policy must be of kind Policy in {API_VERSION}")
    errors: list[str] = []
    stages = _stages(document, "omitStages", errors)
    given = document.get("rules")
    rules = [
        _rule(each, f"rules[{index}]", stages, document, errors) for index, each in enumerate(given if isinstance(given, list) else [])
    ]
    if not rules:
        errors.append("rules: Required value: a policy without rules records nothing")
    if errors:
        raise ValueError("the audit policy is invalid: " + "; ".join(errors))
    return Policy(tuple(rules))


def _rule(given: Any, path: str, stages: frozenset[str], document: Object, errors: list[str]) -> Rule:  # noqa: ANN401 - YAML
    if not isinstance(given, dict):
        errors.append(f"{path}: Invalid value: it is no mapping")
        return Rule(NOTHING)
    errors.extend(f"{path}.{each}: Invalid value: there is no such field" for each in given if each not in _RULE)
    level = _LEVELS.get(given.get("level", ""))
    if level is None:
        errors.append(f"{path}.level: must be one of {', '.join(_LEVELS)}, not {given.get('level')!r}")
    rule = Rule(
        Verdict(
            level or Level.NONE,
            stages | _stages(given, "omitStages", errors, path),
            bool(given.get("omitManagedFields", document.get("omitManagedFields", False))),
        ),
        users=_strings(given, "users", path, errors),
        groups=_strings(given, "userGroups", path, errors),
        verbs=_strings(given, "verbs", path, errors),
        resources=tuple(_resources(each, f"{path}.resources", errors) for each in given.get("resources") or ()),
        namespaces=_strings(given, "namespaces", path, errors),
        paths=_strings(given, "nonResourceURLs", path, errors),
    )
    wrong = [each for each in rule.paths if each != "*" and (not each.startswith("/") or "*" in each[:-1])]
    errors += [f"{path}.nonResourceURLs: {each!r} must begin with '/', and '*' may only be its last character" for each in wrong]
    if rule.paths and (rule.resources or rule.namespaces):
        errors.append(f"{path}.nonResourceURLs: rules cannot apply to both regular resources and non-resource URLs")
    return rule


def _resources(given: Any, path: str, errors: list[str]) -> Resources:  # noqa: ANN401 - YAML
    if not isinstance(given, dict):
        errors.append(f"{path}: Invalid value: it is no mapping")
        return Resources("", (), ())
    group = str(given.get("group") or "")
    if group not in {"", "*"} and not _GROUP.fullmatch(group):
        errors.append(f"{path}.group: {group!r} is no name of a group (without a version)")
    found = Resources(group, _strings(given, "resources", path, errors), _strings(given, "resourceNames", path, errors))
    if found.names and not found.resources:
        errors.append(f"{path}.resourceNames: using resourceNames requires at least one resource")
    return found


def _strings(given: Object, key: str, path: str, errors: list[str]) -> tuple[str, ...]:
    values = given.get(key) or []
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        errors.append(f"{path}.{key}: Invalid value: it is no list of strings")
        return ()
    return tuple(values)


def _stages(given: Object, key: str, errors: list[str], path: str = "") -> frozenset[str]:
    values = _strings(given, key, path, errors)
    errors.extend(f"{path}.{key}: allowed stages are {','.join(STAGES)}, not {each!r}" for each in values if each not in STAGES)
    return frozenset(each for each in values if each in STAGES)
