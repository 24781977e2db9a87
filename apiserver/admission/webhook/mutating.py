"""MutatingAdmissionWebhook: webhooks change the object in sequence by JSON patches.

They run by their configurations' names, then in order.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, field
from typing import Any

import orjson

from apiserver.admission import unapplied
from apiserver.admission.errors import internal, quoted
from apiserver.admission.webhook import annotating
from apiserver.admission.webhook.errors import CallFailed
from apiserver.admission.webhook.plugin import WebhookDispatcher
from apiserver.admission.webhook.registrations import Webhook
from apiserver.admission.webhook.review import JSON_PATCH, Answer, VersionedAttributes
from apiserver.admission.webhook.source import Candidate
from apiserver.apis.meta import json_patch
from apiserver.apis.meta.errors import BadRequest, StatusError
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.registry.generic.admission import Attributes, Operation


@dataclass(slots=True, eq=False)
class _Reinvocation:
    output: Object | None = None
    """After the first round."""
    reinvocable: set[str] = field(default_factory=set)
    """Called, and open to reinvocation."""
    due: set[str] = field(default_factory=set)

    def changed(self) -> None:
        self.due |= self.reinvocable
        self.reinvocable.clear()


class MutatingWebhooks:
    """The admission plug-in that lets mutating webhooks change objects."""

    name = "MutatingAdmissionWebhook"

    def __init__(self, dispatcher: WebhookDispatcher) -> None:
        self._dispatcher = dispatcher

    def handles(self, operation: Operation, resource: Resource, subresource: str) -> bool:
        """Return whether a webhook may match the request; True while webhooks are not loaded."""
        return bool(self._dispatcher.source.candidates(operation, resource, subresource)) or not self._dispatcher.ready

    async def validate(self, attributes: Attributes) -> None:
        """Do nothing."""

    async def mutate(self, attributes: Attributes) -> None:
        """Call matching webhooks in order, and apply their patches to ``attributes.obj``; raise the first refusal.

        A reinvocation calls only webhooks after which the object changed, if they ask for that.
        """
        round_ = attributes.reinvocation
        memory: _Reinvocation = round_.memory.setdefault(self.name, _Reinvocation())
        if round_.again and memory.output != attributes.obj:
            memory.changed()
        for each in await self._dispatcher.candidates(attributes):
            if round_.again and each.webhook.uid not in memory.due:
                continue
            versioned = self._dispatcher.versioned(each, attributes)
            if not await self._dispatcher.wants(each.webhook, versioned):
                continue
            if await self._call(each, versioned, attributes):
                memory.changed()
                round_.requested = True
            if each.webhook.reinvoked:
                memory.reinvocable.add(each.webhook.uid)
        # Copied, because other plug-ins may change it in place.
        memory.output = copy.deepcopy(attributes.obj) if memory.reinvocable and not round_.again else None

    async def _call(self, candidate: Candidate, versioned: VersionedAttributes, attributes: Attributes) -> bool:
        webhook = candidate.webhook
        place = f"round_{int(attributes.reinvocation.again)}_index_{candidate.position}"
        changed = False
        error: StatusError | CallFailed | None = None
        began = time.perf_counter()
        try:
            answer = await self._dispatcher.ask(webhook, versioned)
            changed = self._take(webhook, versioned, attributes, answer)
        except (StatusError, CallFailed) as raised:
            error = raised
        attributes.wait("mutating-webhook", time.perf_counter() - began)
        self._dispatcher.count(webhook, attributes, began, error)
        if isinstance(error, CallFailed):
            error = self._dispatcher.failed(webhook, attributes, error, annotating.MUTATION, place)
        if error is not None:
            raise error
        return changed

    def _take(self, webhook: Webhook, versioned: VersionedAttributes, attributes: Attributes, answer: Answer) -> bool:
        patch = _decoded(webhook, answer)
        if not patch:
            return False
        if versioned.obj is None:
            why = f"admission webhook {quoted(webhook.name)} attempted to modify the object, which is not supported for this operation"
            raise internal(why)
        if answer.patch_type != JSON_PATCH:
            raise CallFailed(webhook.name, f"unsupported patch type {quoted(answer.patch_type)}", 400)
        try:
            patched = json_patch.apply(versioned.obj, patch)
        except BadRequest as error:
            raise _undecodable(webhook, str(error)) from error
        except StatusError as error:
            raise internal(unapplied.why(error, patch)) from error
        if (problem := _problem(patched, versioned.obj)) is not None:
            raise internal(f"admission webhook {quoted(webhook.name)}: {problem}")
        changed: bool = patched != versioned.obj
        if changed:
            attributes.mutators[f"admission webhook {quoted(webhook.name)}"] = None
            attributes.obj = versioned.taken(patched, self._dispatcher.versions)
        return changed


def _decoded(webhook: Webhook, answer: Answer) -> list[dict[str, Any]]:
    if not answer.patch:
        return []
    try:
        patch = orjson.loads(answer.patch)
    except ValueError as error:
        raise _undecodable(webhook, str(error)) from error
    if not isinstance(patch, list | None):
        raise _undecodable(webhook, "a JSON patch must be a list of operations")
    return patch or []


def _undecodable(webhook: Webhook, why: str) -> CallFailed:
    return CallFailed(webhook.name, f"received undecodable patch in webhook response: {why}", 503)


def _problem(patched: object, before: Object) -> str | None:
    if not isinstance(patched, dict):
        return "its patch removed the object"
    if any(patched.get(each) != before.get(each) for each in ("apiVersion", "kind")):
        return "its patch changed apiVersion or kind"
    if not isinstance(patched.get("metadata", {}), dict):
        return "its patch removed metadata"
    return None
