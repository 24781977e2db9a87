"""Calls admission for one strategy's writes: mutation before the kind's rules, validation after.

Only this module makes ``Attributes``. Refusals are StatusErrors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from apiserver.apis.meta.errors import Cause, Details, InternalError, Invalid
from apiserver.apis.meta.objects import HubObject, Object
from apiserver.apis.meta.validation import FieldError
from apiserver.registry.cacher.items import Item
from apiserver.registry.generic import metadata
from apiserver.registry.generic.admission import Admission, Attributes, Operation
from apiserver.registry.generic.options import Caller, DeleteOptions, WriteOptions
from apiserver.registry.generic.planning import Part, Plan, Planner
from apiserver.registry.generic.scaling import Scaling
from apiserver.registry.generic.strategy import Strategy


class Admitter:
    """Calls the admission plug-ins for requests about one strategy's objects."""

    def __init__(self, admission: Admission, strategy: Strategy, planner: Planner) -> None:
        self._admission = admission
        self._strategy = strategy
        self._planner = planner
        self._stored = Planner(strategy.hub)

    def stored_form(self, obj: Object) -> HubObject:
        """Convert a client's object, with defaults, to the stored version, and add defaults of its further fields; consumes ``obj``."""
        strategy = self._strategy
        stored = strategy.to_hub(obj)
        if strategy.hub is not strategy:
            strategy.hub.default(stored)  # fields that the request's version lacks
        return stored

    async def update(self, item: Item, wanted: Object, refused: Sequence[FieldError], options: WriteOptions, part: Part) -> Plan:
        """Call admission; return the ``Plan`` to update ``item`` to the client's ``wanted``, in the request's version.

        ``refused``: errors found before, to raise with others as Invalid. Raises Conflict, Invalid, and admission's errors.
        """
        old, given = item.object, item.object["metadata"]
        attributes = self.attributes("UPDATE", part, given.get("namespace", ""), given["name"], options)
        new = self.stored_form(wanted)
        if attributes is not None and part == "scale" and self._strategy.scaling is not None:
            return await self._scale(self._strategy.scaling, attributes, old, new)
        if attributes is not None:
            new = await self.mutate(attributes, new, old)
        planned = self._planner.update(new, old, part, refused)
        if attributes is not None:
            await self.validate(attributes, planned.obj, old)
        if not part:
            for each in self._strategy.hub.warnings_on_update(planned.obj, old):
                options.caller.warn(each)
        return planned

    async def act(self, item: Item, wanted: Object, subresource: str, options: WriteOptions) -> Plan:
        """Call admission; return the ``Plan`` to change ``item`` to a verb's ``wanted``, in the request's version.

        Raises Invalid, and admission's errors.
        """
        old, given = item.object, item.object["metadata"]
        attributes = self.attributes("UPDATE", subresource, given.get("namespace", ""), given["name"], options)
        new = self.stored_form(wanted)
        if attributes is not None:
            new = await self.mutate(attributes, new, old)
        planned = self._planner.act(new, old)
        if attributes is not None:
            await self.validate(attributes, planned.obj, old)
        return planned

    async def _scale(self, scaling: Scaling, attributes: Attributes, old: HubObject, new: HubObject) -> Plan:
        attributes.obj, attributes.old = HubObject(scaling.view(new)), HubObject(scaling.view(old))
        await self._admission.mutate(attributes)
        planned = self._planner.update(scaling.put_back(new, attributes.obj), old, "scale")
        attributes.obj = HubObject(scaling.view(planned.obj))
        await self._admission.validate(attributes)
        return planned

    def attributes(
        self, operation: Operation, subresource: str, namespace: str, name: str, options: WriteOptions | DeleteOptions
    ) -> Attributes | None:  # fmt: skip
        """Return the ``Attributes`` of a write for admission; None if no plug-in handles it."""
        attributes = self._about(operation, subresource, namespace, name, options.caller)
        if attributes is not None:
            attributes.options, attributes.dry_run = options.to_json(operation), options.dry_run
        return attributes

    async def mutate(self, attributes: Attributes, obj: HubObject, old: HubObject | None) -> HubObject:
        """Return the object after mutating plug-ins. Raises their refusal; InternalError or BadRequest if they made it invalid."""
        attributes.obj, attributes.old = obj, old
        await self._admission.mutate(attributes)
        if attributes.obj is None:
            raise InternalError("mutating admission removed the object")
        if attributes.obj is not obj:
            obj = attributes.obj
            self._read_mutated(obj, attributes.mutators)
            metadata.match_namespace(obj["metadata"], self._strategy.resource, attributes.namespace)
            self._strategy.hub.default(obj)
        return obj

    def _read_mutated(self, obj: HubObject, mutators: Iterable[str]) -> None:
        try:
            self._stored.read(obj, WriteOptions(field_validation="Ignore"), part="status")
        except Invalid as error:
            why = f"{', '.join(mutators) or 'mutating admission'} made the object invalid: {error.message}"
            raise InternalError(f"Internal error occurred: {why}", Details(causes=(Cause("", why),))) from error

    async def validate(self, attributes: Attributes, planned: HubObject, old: HubObject | None) -> None:
        """Call validating plug-ins for the ``planned`` object (``old`` is None for a create). Raises their refusal."""
        attributes.obj, attributes.old = planned, old
        await self._admission.validate(attributes)

    async def delete(self, attributes: Attributes, live: HubObject) -> None:
        """Call admission for the deletion of ``live``. Raises its refusal."""
        attributes.old = live
        await self._admission.mutate(attributes)
        await self._admission.validate(attributes)

    async def connect(self, namespace: str, name: str, subresource: str, caller: Caller) -> None:
        """Call admission for a stream. Raises its refusal."""
        attributes = self._about("CONNECT", subresource, namespace, name, caller)
        if attributes is not None:
            attributes.obj = HubObject({})
            await self._admission.mutate(attributes)
            await self._admission.validate(attributes)

    def _about(self, operation: Operation, subresource: str, namespace: str, name: str, caller: Caller) -> Attributes | None:
        resource = self._strategy.resource
        if not self._admission.handles(operation, resource, subresource):
            return None
        return Attributes(
            operation,
            resource,
            subresource,
            namespace,
            name,
            caller.user,
            warn=caller.warn,
            annotate=caller.annotate,
            wait=caller.wait,
        )
