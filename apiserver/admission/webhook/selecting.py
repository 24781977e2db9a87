"""Whether a webhook whose rules match is to be called: its selectors, its conditions."""

from __future__ import annotations

from collections.abc import Mapping

from apiserver.admission.namespaces import Namespaces
from apiserver.admission.webhook.errors import internal
from apiserver.admission.webhook.registrations import Webhook, Wish
from apiserver.apis.meta.errors import NotFound, ServiceUnavailable
from apiserver.apis.meta.objects import Object, dig, labels_of
from apiserver.registry.generic.admission import Attributes


async def selects(webhook: Webhook, attributes: Attributes, obj: Object | None, namespaces: Namespaces) -> bool:
    """Return whether both selectors match; ``obj`` is the object as it is by now, whatever earlier webhooks made of it.

    Raises:
        NotFound: the object's namespace is absent.
        InternalError: a selector cannot be read, or nobody knows the namespace's labels.
    """
    return await _namespace(webhook.namespaces, attributes, namespaces) and _object(webhook.objects, obj, attributes.old)


async def _namespace(wish: Wish, attributes: Attributes, namespaces: Namespaces) -> bool:
    """Objects of the cluster are in no namespace: no selector leaves them out."""
    if not attributes.namespace:
        return True
    _check(wish)
    if wish.selector.is_everything:
        return True
    try:
        found = await namespaces.get(attributes.namespace)
    except NotFound:
        raise
    except ServiceUnavailable as error:
        raise internal(str(error)) from error
    return wish.selector.matches(labels_of(found))


def _object(wish: Wish, obj: Object | None, old: Object | None) -> bool:
    """The new object or the old one has to match."""
    _check(wish)
    if wish.selector.is_everything:
        return True
    return any(each is not None and wish.selector.matches(_labels(each)) for each in (obj, old))


def _labels(obj: Object) -> Mapping[str, str]:
    """Return the labels of an object that a patch may have left misshapen."""
    found = dig(obj, "metadata", "labels")
    return found if isinstance(found, dict) else {}


def _check(wish: Wish) -> None:
    if wish.problem:
        raise internal(wish.problem)
