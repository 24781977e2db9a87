"""The verb ``setpassword``, which the guest agent carries out, without a trace in etcd."""

from __future__ import annotations

from typing import Final

import orjson

from apiserver.apis.meta import validation
from apiserver.apis.meta.objects import Object, name_of
from apiserver.apis.meta.validation import FieldError, Path
from apiserver.apis.virt.places import noderead
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.apis.virt.spec import password
from apiserver.registry.generic.strategy import RelayedVerb
from apiserver.registry.virt import reads, verbs
from apiserver.registry.virt.handlers import Handlers

_FIELDS: Final = ("user", "password", "encrypted")


class SetPassword(RelayedVerb):
    """The verb that sets a user's password in the guest."""

    def __init__(self, handlers: Handlers | None, seconds: float = noderead.SECONDS) -> None:
        """``handlers``: None in development, so :meth:`act` raises Conflict."""
        self._handlers = handlers
        self._seconds = seconds
        self._waiting = reads.Waiting()

    def check(self, obj: Object, body: Object) -> None:
        """Check state and body. Raises Conflict or Invalid, never with the password."""
        found = [validation.unknown_field(each) for each in sorted(body.keys() - {*_FIELDS, "kind", "apiVersion"})]
        found += [error for each in _FIELDS if (error := _error(each, body)) is not None]
        if found:
            raise validation.to_invalid(found, group=VIRTUAL_MACHINES.group, kind=VIRTUAL_MACHINES.kind, name=name_of(obj))
        verbs.raise_if_refused(obj, verbs.refuse_set_password)

    async def act(self, obj: Object, body: Object) -> None:
        """Have virt-handler set the password in the guest.

        Raises a StatusError if that failed or is unknown.
        """
        name = f'{password.NAME} of virtual machine "{name_of(obj)}"'
        if self._handlers is None:
            raise verbs.conflict(obj, "this virt-api runs without access to virt-handler, which sets passwords")
        with self._waiting.one(obj, name):
            destination = await self._handlers.destination(obj, password.NAME)
            posted = orjson.dumps({each: body[each] for each in _FIELDS if body.get(each) is not None})
            await reads.ask(destination, name, self._seconds, noderead.MAX_BYTES, posted)


def _error(name: str, body: Object) -> FieldError | None:
    given = body.get(name)
    if given is None:
        return None if name == "encrypted" else validation.required(Path(name), "")
    why = password.problem(name, given)
    return validation.invalid(Path(name), "<hidden>", why) if why else None
