"""Match requests with webhooks, policies and bindings (``webhook/predicates`` and ``policy/matching``).

Selectors come first: a request that they exclude gets no error, even about a selector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apiserver.admission.errors import internal
from apiserver.admission.namespaces import Namespaces
from apiserver.admission.rules import Rule
from apiserver.admission.versions import Versions
from apiserver.apis.meta import labels
from apiserver.apis.meta.errors import NotFound, StatusError
from apiserver.apis.meta.objects import Json, Object, dig, labels_of
from apiserver.apis.meta.resources import Resource
from apiserver.registry.generic.admission import Attributes


@dataclass(frozen=True, slots=True)
class ParsedSelector:
    """A selector, or the problem to report on use."""

    selector: labels.Selector = labels.EVERYTHING
    problem: str = ""

    @classmethod
    def read(cls, selector: Mapping[str, Json] | None) -> ParsedSelector:
        """Parse a ``LabelSelector``; an error becomes the result's ``problem``."""
        try:
            return cls(labels.from_json(selector))
        except (KeyError, TypeError, AttributeError) as error:
            return cls(problem=f"cannot parse a label selector: {error!r}")


@dataclass(frozen=True, slots=True)
class Matching:
    """Requests that a webhook, a policy or a binding matches."""

    rules: tuple[Rule, ...]
    excluded: tuple[Rule, ...] = ()
    namespaces: ParsedSelector = ParsedSelector()
    objects: ParsedSelector = ParsedSelector()
    equivalent: bool = True
    everything: bool = False
    """For policies, no rules match everything; webhooks without rules are never called."""

    @classmethod
    def of_webhook(cls, given: Mapping[str, Any]) -> Matching:
        """Parse the rules and selectors of a ``ValidatingWebhook`` or ``MutatingWebhook``."""
        return cls(_rules(given.get("rules")), (), **_rest(given))

    @classmethod
    def of_resources(cls, given: Mapping[str, Any] | None) -> Matching:
        """Parse a ``MatchResources``; an empty one matches every request."""
        given = given or {}
        return cls(_rules(given.get("resourceRules")), _rules(given.get("excludeResourceRules")), **_rest(given), everything=True)

    def named(
        self, operation: str, resource: Resource, subresource: str, equivalents: Sequence[Resource], name: str | None = None
    ) -> Resource | None:
        """Return the requested resource if the rules name it, else the first of ``equivalents`` that the earliest rule names, or None.

        A policy without rules names all. ``matchPolicy: Exact`` leaves out ``equivalents``. ``name`` None: any name.
        """
        if not self.rules and self.everything:
            return resource
        return self._first(self.rules, operation, resource, subresource, equivalents, name)

    def excludes(self, attributes: Attributes, equivalents: Sequence[Resource]) -> bool:
        """Return whether ``excludeResourceRules`` match the request or, without ``matchPolicy: Exact``, an equivalent."""
        about = (attributes.operation, attributes.resource, attributes.subresource)
        return self._first(self.excluded, *about, equivalents, attributes.name) is not None

    def _first(
        self, rules: Sequence[Rule], operation: str, resource: Resource, subresource: str, equivalents: Sequence[Resource], name: str | None
    ) -> Resource | None:
        named = [each for each in rules if name is None or not each.names or name in each.names]
        if any(each.matches(operation, resource, subresource) for each in named):
            return resource
        if self.equivalent:
            others = [each for each in equivalents if each != resource]
            return next((other for rule in named for other in others if rule.matches(operation, other, subresource)), None)
        return None


def _rules(given: Sequence[Object] | None) -> tuple[Rule, ...]:
    return tuple(Rule.read(each) for each in given or ())


def _rest(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "namespaces": ParsedSelector.read(given.get("namespaceSelector")),
        "objects": ParsedSelector.read(given.get("objectSelector")),
        "equivalent": (given.get("matchPolicy") or "Equivalent") == "Equivalent",
    }


async def matches(matching: Matching, attributes: Attributes, namespaces: Namespaces, versions: Versions) -> Resource | None:
    """Return the matching resource: the requested one, or an equivalent version; None if the request does not match.

    Raises a StatusError for an invalid selector or an unavailable namespace.
    """
    problem: StatusError | None = None
    try:
        if not await selects(matching, attributes, namespaces):
            return None
    except StatusError as error:
        problem = error
    equivalents = versions.equivalents(attributes.resource)
    if matching.excludes(attributes, equivalents):
        return None
    found = matching.named(attributes.operation, attributes.resource, attributes.subresource, equivalents, attributes.name)
    if found is not None and problem is not None:
        raise problem
    return found


async def selects(matching: Matching, attributes: Attributes, namespaces: Namespaces) -> bool:
    """Return whether both selectors match: one the namespace's labels, if there is a namespace, the other the new or the old object.

    If one cannot be evaluated, and the other matches, raises NotFound (the namespace) or InternalError.
    """
    problem: StatusError | None = None
    try:
        if not await _in_namespace(matching.namespaces, attributes, namespaces):
            return False
    except StatusError as error:
        problem = error
    if matching.objects.problem:
        problem = problem or internal(matching.objects.problem)
    elif not _is_object(matching.objects.selector, attributes):
        return False
    if problem is not None:
        raise problem
    return True


async def _in_namespace(parsed: ParsedSelector, attributes: Attributes, namespaces: Namespaces) -> bool:
    if not attributes.namespace:
        return True
    if parsed.problem:
        raise internal(parsed.problem)
    if parsed.selector.is_everything:
        return True
    try:
        found = await namespaces.get(attributes.namespace)
    except NotFound:
        raise
    except StatusError as error:
        raise internal(str(error)) from error
    return parsed.selector.matches(labels_of(found))


def _is_object(selector: labels.Selector, attributes: Attributes) -> bool:
    return selector.is_everything or any(each is not None and selector.matches(_labels(each)) for each in (attributes.obj, attributes.old))


def _labels(obj: Object) -> Mapping[str, str]:
    found = dig(obj, "metadata", "labels")
    return found if isinstance(found, dict) else {}
