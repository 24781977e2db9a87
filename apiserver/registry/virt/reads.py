"""Subresources answered by virt-handler on the machine's node, at the path of ``apis.virt.places.noderead``, and validated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

import orjson

from apiserver.apis.meta import decoding, errors
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt.domainxml import subresource
from apiserver.apis.virt.places import names, noderead
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.apis.virt.spec import guestinfo, screenshot
from apiserver.apis.virt.v1alpha1.given_xml import VirtualMachineDomainXML
from apiserver.apis.virt.v1alpha1.guestinfo import VirtualMachineGuestInfo
from apiserver.apis.virt.v1alpha1.screenshot import VirtualMachineScreenshot
from apiserver.client.connections import Connections, Origin, Response
from apiserver.client.exchange import Timeouts
from apiserver.client.transport import ExchangeFailed, NotTrusted
from apiserver.registry.generic.strategy import Destination, Read
from apiserver.registry.virt import streams
from apiserver.registry.virt.handlers import Handlers

MAX_WAITING: Final = 64
MAX_WAITING_PER_MACHINE: Final = 8
"""Slow guest agents must not take all places, so a namespace gets at most half of the remaining ones."""
RETRY_SECONDS: Final = 5
CONNECT_SECONDS: Final = 10.0
MAX_ERROR_TEXT: Final = 512
_JSON: Final[Mapping[str, str]] = {"Accept": "application/json"}


class HandlerRead(Read):
    """A subresource answered by virt-handler."""

    name: ClassVar[str]
    """Also at virt-handler."""
    max_bytes: ClassVar[int] = noderead.MAX_BYTES
    max_waiting: ClassVar[int] = MAX_WAITING
    """At once; each answer takes memory."""

    def __init__(self, handlers: Handlers, seconds: float = noderead.SECONDS) -> None:
        self._handlers = handlers
        self._seconds = seconds
        self._waiting = Waiting(self.max_waiting)

    def fields(self, answer: Object) -> Object:
        """Return our object's fields from virt-handler's untrusted answer; raises ValueError if it is invalid."""
        return answer

    async def read(self, obj: Object) -> Object:
        """Return virt-handler's answer as an object of kind ``answers``.

        Raises BadRequest without a guest, TooManyRequests, ServiceUnavailable, Timeout, or virt-handler's own error.
        """
        name = f'{self.name} of virtual machine "{obj["metadata"]["name"]}"'
        if reason := streams.absent(obj):
            raise errors.BadRequest(f"cannot read {name}: {reason}", _details(obj))
        with self._waiting.one(obj, name):
            destination = await self._handlers.destination(obj, self.name)
            answer = await ask(destination, name, self._seconds, self.max_bytes)
        metadata = {key: obj["metadata"][key] for key in ("name", "namespace", "uid")}
        try:
            return {"kind": self.answers.kind, "apiVersion": self.answers.api_version, "metadata": metadata, **self._shaped(answer)}
        except ValueError as error:
            raise errors.ServiceUnavailable(f"its node returned an invalid {name}: {error}") from error

    def _shaped(self, answer: Object) -> Object:
        found = {key: value for key, value in self.fields(answer).items() if key not in ("kind", "apiVersion", "metadata")}
        _, wrong = decoding.read(self.model, found)
        if wrong:
            raise ValueError(str(wrong[0]))
        return found


class DomainXML(HandlerRead):
    """Serves ``domainxml``: libvirt's XML."""

    name = subresource.NAME
    answers = Resource(names.GROUP, names.VERSION, "virtualmachinedomainxmls", "VirtualMachineDomainXML")
    model = VirtualMachineDomainXML

    def fields(self, answer: Object) -> Object:
        """Return ``{"xml": text}``, checked; raises ValueError."""
        return subresource.parse(_text(answer, subresource.FIELD))


class GuestInfo(HandlerRead):
    """Serves ``guestinfo``: the guest agent's reports."""

    name = guestinfo.NAME
    answers = Resource(names.GROUP, names.VERSION, "virtualmachineguestinfos", "VirtualMachineGuestInfo")
    model = VirtualMachineGuestInfo

    def fields(self, answer: Object) -> Object:
        """Return the answer's valid part, cut to its bounds."""
        return guestinfo.bounded(answer)


class Screenshot(HandlerRead):
    """Serves ``screenshot``: the guest's screen."""

    name = screenshot.NAME
    answers = Resource(names.GROUP, names.VERSION, "virtualmachinescreenshots", "VirtualMachineScreenshot")
    model = VirtualMachineScreenshot
    max_bytes: ClassVar[int] = 5 << 20
    max_waiting: ClassVar[int] = 8

    def fields(self, answer: Object) -> Object:
        """Return ``{"png": base64}``, checked; raises ValueError."""
        return screenshot.parse(_text(answer, screenshot.FIELD))


def _text(answer: Object, field: str) -> str:
    text = answer.get(field)
    if not isinstance(text, str):
        raise ValueError(f"{field} must be a string")  # noqa: TRY004  # read expects this of a wrong answer
    return text


class Waiting:
    """Limits the requests that wait for nodes."""

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        self.max_waiting = max_waiting
        self._waiting: Counter[str] = Counter()
        """By the machine's uid, and by namespace after a slash."""

    @contextmanager
    def one(self, vm: Object, name: str) -> Iterator[None]:
        """Count the request for ``name`` by machine and namespace while the block runs; raises TooManyRequests."""
        machine, namespace = vm["metadata"]["uid"], f"/{vm['metadata']['namespace']}"
        left = self.max_waiting - sum(count for key, count in self._waiting.items() if key.startswith("/"))
        if self._waiting[machine] >= MAX_WAITING_PER_MACHINE or self._waiting[namespace] >= (left + 1) // 2:
            raise errors.TooManyRequests(f"too many similar requests for {name} are waiting; try again later", _details(vm, RETRY_SECONDS))
        counted = (machine, namespace)
        self._waiting.update(counted)
        try:
            yield
        finally:
            self._waiting.subtract(counted)
            self._waiting = +self._waiting


async def ask(destination: Destination, name: str, seconds: float, max_bytes: int, posted: bytes | None = None) -> dict[str, Any]:
    """Return virt-handler's JSON answer to a GET, or to a POST of ``posted``; errors mention ``name``.

    Raises Timeout after ``seconds``; ServiceUnavailable, also for over ``max_bytes``; or virt-handler's own error.
    """
    url = urlsplit(destination.url)
    origin = Origin(url.hostname or "", url.port or 443, destination.tls, destination.server_name)
    timeouts = Timeouts(total_seconds=seconds, connect_seconds=CONNECT_SECONDS)
    try:
        async with Connections(keep_seconds=0) as connections:
            method, headers = ("GET", _JSON) if posted is None else ("POST", {**_JSON, "Content-Type": "application/json"})
            refusal = destination.trust.refusal if destination.trust is not None else None
            with await connections.send(
                origin, method, url.path, headers=headers, body=posted, timeouts=timeouts, refusal=refusal
            ) as response:
                body = await response.read(max_bytes)
    except TimeoutError as error:
        raise errors.Timeout(f"{destination} was asked for {name}: {error}") from error
    except NotTrusted as error:
        raise errors.ServiceUnavailable(f"{destination} is not trusted: {error}") from error
    except ExchangeFailed as error:
        raise errors.ServiceUnavailable(f"{destination} was asked for {name}: {error}", errors.Details(retry_after_seconds=1)) from error
    return _object(response, body, str(destination))


def _object(response: Response, body: bytes, server: str) -> dict[str, Any]:
    try:
        found = orjson.loads(body)
    except ValueError:
        found = None
    if response.status == 200 and isinstance(found, dict):
        return found
    if isinstance(found, dict) and found.get("kind") == "Status" and response.status >= 400:
        error = errors.from_status(found, response.status)
    else:
        error = errors.from_http(response.status, body[:MAX_ERROR_TEXT].decode(errors="replace"))
    error = errors.of_untrusted(error)  # root on the node controls virt-handler
    if isinstance(error, errors.UnknownStatus) or response.status < 400:
        raise errors.ServiceUnavailable(f"{server} returned an invalid response: {error.message}", error.details)
    raise error


def _details(vm: Object, retry_after_seconds: int = 0) -> errors.Details:
    resource = VIRTUAL_MACHINES
    return errors.Details(
        name=vm["metadata"]["name"], group=resource.group, kind=resource.plural, retry_after_seconds=retry_after_seconds
    )  # fmt: skip
