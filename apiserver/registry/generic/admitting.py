"""Calls admission for one strategy's writes: mutation before the kind's rules, validation after."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from apiserver.apis.meta.errors import Cause, Details, InternalError, Invalid
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.validation import FieldError
from apiserver.registry.cacher.items import Item
from apiserver.registry.generic import codec, metadata
from apiserver.registry.generic.admission import Admission, Attributes, Operation
from apiserver.registry.generic.options import Caller, DeleteOptions, WriteOptions
from apiserver.registry.generic.planning import Part, Plan, Planner
from apiserver.registry.generic.scaling import Scaling
from apiserver.registry.generic.strategy import Strategy


class Admitter:
    """Calls admission for the objects of one strategy."""

    def __init__(self, admission: Admission, strategy: Strategy, planner: Planner) -> None:
        self._admission = admission
        self._strategy = strategy
        self._planner = planner

    async def update(
        self, item: Item, live: Object, wanted: Object, refused: Sequence[FieldError], options: WriteOptions, part: Part
    ) -> Plan:  # fmt: skip
        """Plan an update of ``item``, ``live`` in the request's version, to the client's ``wanted``.

        Raises:
            Conflict, Invalid, and errors of admission.
        """
        old, given = item.object, item.object["metadata"]
        attributes = self.attributes("UPDATE", part, given.get("namespace", ""), given["name"], options)
        if attributes is not None and part == "scale" and self._strategy.scaling is not None:
            return await self._scale(self._strategy.scaling, attributes, old, wanted)
        if attributes is not None:
            wanted = await self.mutate(attributes, wanted, live)
        planned = self._planner.update(self._strategy.to_hub(wanted), old, part, refused)
        if attributes is not None:
            await self.validate(attributes, planned.obj, live)
        if not part:
            for each in self._strategy.hub.warnings_on_update(planned.obj, old):
                options.caller.warn(each)
        return planned

    async def act(self, item: Item, live: Object, wanted: Object, subresource: str, options: WriteOptions) -> Plan:
        """Plan a verb's change of ``item`` to ``wanted``, in the request's version like ``live``.

        Raises:
            Invalid, and errors of admission.
        """
        given = item.object["metadata"]
        attributes = self.attributes("UPDATE", subresource, given.get("namespace", ""), given["name"], options)
        if attributes is not None:
            wanted = await self.mutate(attributes, wanted, live)
        planned = self._planner.act(self._strategy.to_hub(wanted), item.object)
        if attributes is not None:
            await self.validate(attributes, planned.obj, live)
        return planned

    async def _scale(self, scaling: Scaling, attributes: Attributes, old: Object, wanted: Object) -> Plan:
        """Plan an update of the replicas, with the ``Scale`` for admission."""
        attributes.obj, attributes.old = scaling.view(wanted), scaling.view(old)
        await self._admission.mutate(attributes)
        wanted = scaling.put_back(wanted, attributes.obj)
        planned = self._planner.update(self._strategy.to_hub(wanted), old, "scale")
        attributes.obj = scaling.view(planned.obj)
        await self._admission.validate(attributes)
        return planned

    def attributes(
        self, operation: Operation, subresource: str, namespace: str, name: str, options: WriteOptions | DeleteOptions
    ) -> Attributes | None:  # fmt: skip
        """Return a write's admission request; None if no plug-in handles it."""
        attributes = self._about(operation, subresource, namespace, name, options.caller)
        if attributes is not None:
            attributes.options, attributes.dry_run = options.to_json(operation), options.dry_run
        return attributes

    async def mutate(self, attributes: Attributes, obj: Object, old: Object | None) -> Object:
        """Return the object after mutating admission, validated like a client's."""
        attributes.obj, attributes.old = obj, old
        await self._admission.mutate(attributes)
        if attributes.obj is None:
            raise InternalError("mutating admission left no object")
        if attributes.obj is not obj:
            obj = attributes.obj
            self._read_mutated(obj, attributes.mutators)
            metadata.match_namespace(obj["metadata"], self._strategy.resource, attributes.namespace)
            self._strategy.default(obj)
        return obj

    def _read_mutated(self, obj: Object, mutators: Iterable[str]) -> None:
        """Check a mutated object's schema; a violation is an internal error."""
        try:
            self._planner.read(obj, WriteOptions(field_validation="Ignore"), part="status")
        except Invalid as error:
            why = f"{', '.join(mutators) or 'mutating admission'} left an object that cannot be read: {error.message}"
            raise InternalError(f"Internal error occurred: {why}", Details(causes=(Cause("", why),))) from error

    async def validate(self, attributes: Attributes, planned: Object, old: Object | None) -> None:
        """Validate the planned object in the request's version.

        Raises:
            StatusError: admission refuses.
        """
        strategy = self._strategy
        attributes.obj = planned if strategy.hub is strategy else strategy.from_hub(codec.copy(planned))
        attributes.old = old
        await self._admission.validate(attributes)

    async def delete(self, attributes: Attributes, live: Object) -> None:
        """Call admission for a deletion.

        Raises:
            StatusError: admission refuses.
        """
        attributes.old = live
        await self._admission.mutate(attributes)
        await self._admission.validate(attributes)

    async def connect(self, namespace: str, name: str, subresource: str, caller: Caller) -> None:
        """Call admission for a stream.

        Raises:
            StatusError: admission refuses.
        """
        attributes = self._about("CONNECT", subresource, namespace, name, caller)
        if attributes is not None:
            attributes.obj = {}
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
