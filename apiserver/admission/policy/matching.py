"""Whether a policy or binding is about a request (``plugin/policy/matching``)."""

from __future__ import annotations

from collections.abc import Sequence

from apiserver.admission.namespaces import Namespaces
from apiserver.admission.policy.definitions import Matching, NamedRule
from apiserver.admission.versions import Versions
from apiserver.admission.webhook.errors import internal
from apiserver.apis.meta.errors import NotFound, StatusError
from apiserver.apis.meta.objects import Object, dig, labels_of
from apiserver.apis.meta.resources import Resource
from apiserver.registry.generic.admission import Attributes


def rules_name(matching: Matching, operation: str, resource: Resource, subresource: str, equivalents: Sequence[Resource]) -> bool:
    """Return whether the rules name a resource for some name: what an index can say before the request is looked at."""
    if not matching.rules:
        return True
    everything = [resource, *(equivalents if matching.equivalent else ())]
    return any(each.rule.matches(operation, candidate, subresource) for each in matching.rules for candidate in everything)


async def matches(matching: Matching, attributes: Attributes, namespaces: Namespaces, versions: Versions) -> Resource | None:
    """Return the resource that the rules name: as requested, or an equivalent version; None if they do not match.

    Raises:
        StatusError: they match, but a selector cannot be read, or the namespace is absent or not to be looked up.
    """
    problem: StatusError | None = None
    try:
        if not await _in_namespace(matching, attributes, namespaces):
            return None
    except StatusError as error:
        problem = error
    if matching.objects.problem:
        problem = problem or internal(matching.objects.problem)
    elif not matching.objects.selector.is_everything and not any(
        each is not None and matching.objects.selector.matches(_labels(each)) for each in (attributes.obj, attributes.old)
    ):
        return None
    if _named(matching.excluded, matching, attributes, versions) is not None:
        return None
    found = _named(matching.rules, matching, attributes, versions) if matching.rules else attributes.resource
    if found is not None and problem is not None:
        raise problem
    return found


async def _in_namespace(matching: Matching, attributes: Attributes, namespaces: Namespaces) -> bool:
    wish = matching.namespaces
    if not attributes.namespace:
        return True
    if wish.problem:
        raise internal(wish.problem)
    if wish.selector.is_everything:
        return True
    try:
        found = await namespaces.get(attributes.namespace)
    except NotFound:
        raise
    except StatusError as error:
        raise internal(str(error)) from error
    return wish.selector.matches(labels_of(found))


def _labels(obj: Object) -> dict[str, str]:
    found = dig(obj, "metadata", "labels")
    return found if isinstance(found, dict) else {}


def _named(rules: Sequence[NamedRule], matching: Matching, attributes: Attributes, versions: Versions) -> Resource | None:
    if not rules:
        return None
    resource = attributes.resource
    if _match(rules, attributes, resource):
        return resource
    if matching.equivalent:
        for each in rules:
            for equivalent in versions.equivalents(resource):
                if equivalent != resource and _match((each,), attributes, equivalent):
                    return equivalent
    return None


def _match(rules: Sequence[NamedRule], attributes: Attributes, resource: Resource) -> bool:
    return any(
        each.rule.matches(attributes.operation, resource, attributes.subresource) and (not each.names or attributes.name in each.names)
        for each in rules
    )
