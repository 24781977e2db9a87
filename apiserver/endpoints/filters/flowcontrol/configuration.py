"""FlowSchemas and PriorityLevelConfigurations (``flowcontrol.apiserver.k8s.io/v1``) as data, matched with requests. Pure.

Invalid objects are skipped with a reason. Mandatory levels and schemas (``exempt``, ``catch-all``) always exist, even if
the cluster lost them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.meta.users import MASTERS, UNAUTHENTICATED, User
from apiserver.endpoints.requestinfo import RequestInfo

EXEMPT: Final = "exempt"
CATCH_ALL: Final = "catch-all"
_ACCOUNT: Final = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Queuing:
    """The queues of a level."""

    queues: int = 64
    hand_size: int = 8
    length: int = 50
    """Longest queue."""


@dataclass(frozen=True, slots=True)
class Level:
    """One PriorityLevelConfiguration."""

    name: str
    uid: str = ""
    exempt: bool = False
    shares: int = 30
    lendable_percent: int = 0
    borrowing_percent: int | None = None
    """None: unlimited."""
    queuing: Queuing | None = None
    """None: refuse requests beyond the limit at once."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Subjects, and the requests that the rule covers."""

    subjects: tuple[tuple[str, str, str], ...]
    """Kind, namespace, name."""
    resources: tuple[Mapping[str, Any], ...] = ()
    paths: tuple[Mapping[str, Any], ...] = ()

    def matches(self, user: User, info: RequestInfo) -> bool:
        """Return whether the rule matches the request."""
        if not any(_is(user, *each) for each in self.subjects):
            return False
        if info.is_resource:
            return any(_resource_matches(each, info) for each in self.resources)
        return any(_path_matches(each, info) for each in self.paths)


@dataclass(frozen=True, slots=True)
class Schema:
    """One FlowSchema."""

    name: str
    level: str
    uid: str = ""
    precedence: int = 1000
    distinguisher: str = ""
    """``ByUser``, ``ByNamespace``, or empty: a single flow."""
    rules: tuple[Rule, ...] = ()

    def flow(self, user: User, info: RequestInfo) -> str:
        """Return the flow of a request."""
        match self.distinguisher:
            case "ByUser":
                return user.name
            case "ByNamespace":
                return info.namespace
            case _:
                return ""


_EVERYONE: Final = (("Group", "", UNAUTHENTICATED), ("Group", "", "system:authenticated"))
_ALL_RESOURCES: Final = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
_ALL_PATHS: Final = {"verbs": ["*"], "nonResourceURLs": ["*"]}
MANDATORY_LEVELS: Final = (Level(EXEMPT, exempt=True, shares=0), Level(CATCH_ALL, shares=5))
MANDATORY_SCHEMAS: Final = (
    Schema(EXEMPT, EXEMPT, precedence=1, rules=(Rule((("Group", "", MASTERS),), (_ALL_RESOURCES,), (_ALL_PATHS,)),)),
    Schema(CATCH_ALL, CATCH_ALL, precedence=10000, distinguisher="ByUser", rules=(Rule(_EVERYONE, (_ALL_RESOURCES,), (_ALL_PATHS,)),)),
)


@dataclass(frozen=True, slots=True)
class Configuration:
    """All levels, and the schemas in order of precedence."""

    levels: Mapping[str, Level] = field(default_factory=lambda: {each.name: each for each in MANDATORY_LEVELS})
    schemas: tuple[Schema, ...] = MANDATORY_SCHEMAS

    def classify(self, user: User, info: RequestInfo) -> Schema:
        """Return the schema of a request."""
        return next((each for each in self.schemas if any(rule.matches(user, info) for rule in each.rules)), self._last)

    @property
    def _last(self) -> Schema:
        return next(each for each in self.schemas if each.name == CATCH_ALL)


def read(schemas: Iterable[Object], levels: Iterable[Object]) -> tuple[Configuration, list[str]]:
    """Parse the objects. Return the configuration, and the skipped parts with reasons."""
    wrong: list[str] = []
    known = {each.name: each for each in MANDATORY_LEVELS}
    for obj in levels:
        try:
            level = _level(obj)
            known[level.name] = level
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            wrong.append(f"PriorityLevelConfiguration {dig(obj, 'metadata', 'name')}: {error}")
    found = {each.name: each for each in MANDATORY_SCHEMAS}
    for obj in schemas:
        try:
            schema = _schema(obj)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            wrong.append(f"FlowSchema {dig(obj, 'metadata', 'name')}: {error}")
            continue
        if schema.level in known:
            found[schema.name] = schema
        else:
            wrong.append(f"FlowSchema {schema.name}: there is no PriorityLevelConfiguration {schema.level}")
    ordered = sorted(found.values(), key=lambda each: (each.precedence, each.name))
    return Configuration(known, tuple(ordered)), wrong


def _level(obj: Object) -> Level:
    name, uid, spec = obj["metadata"]["name"], obj["metadata"].get("uid") or "", obj["spec"]
    if spec["type"] == "Exempt":
        exempt = spec.get("exempt") or {}
        shares, lendable = _whole(exempt, "nominalConcurrencyShares", 0), _whole(exempt, "lendablePercent", 0)
        return Level(name, uid, exempt=True, shares=shares, lendable_percent=lendable)
    limited = spec.get("limited") or {}
    response = limited.get("limitResponse") or {}
    queuing = None
    if response.get("type") == "Queue":
        given = response.get("queuing") or {}
        queuing = Queuing(_whole(given, "queues", 64), _whole(given, "handSize", 8), _whole(given, "queueLengthLimit", 50))
        if not 0 < queuing.hand_size <= queuing.queues or queuing.length < 1:
            raise ValueError("handSize must be between 1 and queues, and queueLengthLimit positive")
    borrowing = limited.get("borrowingLimitPercent")
    return Level(
        name,
        uid,
        shares=_whole(limited, "nominalConcurrencyShares", 30),
        lendable_percent=_whole(limited, "lendablePercent", 0),
        borrowing_percent=None if borrowing is None else int(borrowing),
        queuing=queuing,
    )


def _schema(obj: Object) -> Schema:
    spec = obj["spec"]
    return Schema(
        obj["metadata"]["name"],
        spec["priorityLevelConfiguration"]["name"],
        obj["metadata"].get("uid") or "",
        _whole(spec, "matchingPrecedence", 1000),
        (spec.get("distinguisherMethod") or {}).get("type") or "",
        tuple(_rule(each) for each in spec.get("rules") or ()),
    )


def _rule(given: Object) -> Rule:
    subjects = []
    for each in given.get("subjects") or ():
        about = each.get({"User": "user", "Group": "group", "ServiceAccount": "serviceAccount"}[each["kind"]]) or {}
        subjects.append((each["kind"], about.get("namespace") or "", about["name"]))
    return Rule(tuple(subjects), tuple(given.get("resourceRules") or ()), tuple(given.get("nonResourceRules") or ()))


def _whole(given: Object, key: str, default: int) -> int:
    value = given.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{key} is no natural number")
    return value


def _is(user: User, kind: str, namespace: str, name: str) -> bool:
    match kind:
        case "User":
            return name in {"*", user.name}
        case "Group":
            return name == "*" or name in user.groups
        case _:
            full = f"{_ACCOUNT}{namespace}:"
            return user.name.startswith(full) and name in {"*", user.name.removeprefix(full)}


def _resource_matches(rule: Mapping[str, Any], info: RequestInfo) -> bool:
    full = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    if not (_among(info.verb, rule.get("verbs")) and _among(full, rule.get("resources")) and _among(info.group, rule.get("apiGroups"))):
        return False
    return _among(info.namespace, rule.get("namespaces")) if info.namespace else bool(rule.get("clusterScope"))


def _path_matches(rule: Mapping[str, Any], info: RequestInfo) -> bool:
    if not _among(info.verb, rule.get("verbs")):
        return False
    for each in rule.get("nonResourceURLs") or ():
        prefix = each.removesuffix("*")
        if each in {"*", info.path} or info.path.startswith(prefix if prefix.endswith("/") else f"{prefix}/"):
            return True
    return False


def _among(value: str, values: Any) -> bool:  # noqa: ANN401 - JSON
    return bool(values) and (values[0] == "*" or value in values)
