"""ResourceQuota: limit a namespace's objects to ``count/<resource>.<group>`` of its quotas.

Between the counts of the cluster's quota controller, this plug-in adds creations to the quota's status, at the revision
that it read. The next count corrects charges for objects that were not stored. Source:
``k8s.io/apiserver/pkg/admission/plugin/resourcequota``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from apiserver.admission.errors import forbidden, internal
from apiserver.apis.core.resources import RESOURCE_QUOTAS
from apiserver.apis.meta import quantity
from apiserver.apis.meta.errors import Conflict, NotFound, StatusError
from apiserver.apis.meta.objects import Object, dig, name_of, namespace_of
from apiserver.apis.meta.quantity import Quantity
from apiserver.apis.meta.resources import Resource
from apiserver.client.informer import Informer
from apiserver.client.rest import Client, TransportError
from apiserver.registry.generic.admission import Attributes, Operation

logger = logging.getLogger(__name__)

SECONDS: Final = 10.0
"""Longest wait of a request."""
RETRIES: Final = 3
_ONE: Final = quantity.parse("1")


@dataclass(eq=False, slots=True)
class _Waiter:
    attributes: Attributes
    settled: bool = False
    refusal: StatusError | None = None

    def settle(self, refusal: StatusError | None = None) -> None:
        self.settled, self.refusal = True, refusal


@dataclass(eq=False, slots=True)
class _Queue:
    """Creations of one namespace that wait; one request evaluates them all."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: list[_Waiter] = field(default_factory=list)
    users: int = 0


class ResourceQuotas:
    """The admission plug-in that charges created objects to their namespace's ResourceQuotas; refuses them if one is exhausted."""

    name = "ResourceQuota"

    def __init__(self, client: Client) -> None:
        self.informer = Informer(client, RESOURCE_QUOTAS, indexers={"namespace": lambda obj: [namespace_of(obj)]})
        self._client = client
        self._queues: dict[str, _Queue] = {}

    def handles(self, operation: Operation, resource: Resource, subresource: str) -> bool:
        """Return whether the request creates a namespaced object, and quotas exist or are unknown."""
        if operation != "CREATE" or subresource or not resource.namespaced:
            return False
        return len(self.informer) > 0 or not self.informer.synced.is_set()

    async def mutate(self, attributes: Attributes) -> None:
        """Change nothing."""

    async def validate(self, attributes: Attributes) -> None:
        """Charge every quota that counts the object; a dry run only checks.

        Raises Forbidden if a quota is exhausted or its usage unknown, InternalError without decision in time, or kube-apiserver's error.
        """
        try:
            async with asyncio.timeout(SECONDS):
                await self.informer.synced.wait()
                if not self._counting(attributes):
                    return
                refusal = await self._in_turn(attributes)
        except TimeoutError:
            raise internal("resource quota evaluation timed out") from None
        if refusal is not None:
            raise refusal

    def _counting(self, attributes: Attributes) -> list[Object]:
        wanted = count_name(attributes.resource)
        return [each for each in self.informer.by_index("namespace", attributes.namespace) if counts(each, wanted)]

    async def _in_turn(self, attributes: Attributes) -> StatusError | None:
        queue = self._queues.setdefault(attributes.namespace, _Queue())
        waiter = _Waiter(attributes)
        queue.waiting.append(waiter)
        queue.users += 1
        try:
            async with queue.lock:
                while not waiter.settled:
                    await self._evaluate(queue)
        finally:
            queue.users -= 1
            if not waiter.settled and waiter in queue.waiting:
                queue.waiting.remove(waiter)
            if not queue.users:
                self._queues.pop(attributes.namespace, None)
        return waiter.refusal

    async def _evaluate(self, queue: _Queue) -> None:
        batch, queue.waiting = queue.waiting, []
        try:
            await self._charge(batch)
        finally:
            queue.waiting = [each for each in batch if not each.settled] + queue.waiting  # cancelled: the next one evaluates them

    async def _charge(self, batch: Sequence[_Waiter]) -> None:
        for resource in {each.attributes.resource for each in batch}:
            waiters = [each for each in batch if each.attributes.resource == resource]
            due: list[str] | None = None
            """Quotas still to charge; None: all."""
            for attempt in range(1 + RETRIES):
                due, error = await self._round(waiters, due, resource)
                if not due:
                    break
                if attempt == RETRIES:
                    for each in waiters:
                        if not each.settled:
                            each.settle(error)
            for each in waiters:
                if not each.settled:
                    each.settle()

    async def _round(self, waiters: Iterable[_Waiter], due: list[str] | None, resource: Resource) -> tuple[list[str], StatusError]:
        wanted = count_name(resource)
        open_ = [each for each in waiters if not each.settled]
        if not open_:
            return [], internal("")
        quotas = [each for each in self._counting(open_[0].attributes) if due is None or name_of(each) in due]
        usage = Usage.of(quotas, wanted)
        for each in open_:
            refusal = usage.check(each.attributes)
            if refusal is not None:
                each.settle(refusal)
            elif each.attributes.dry_run or not quotas:
                each.settle()
            else:
                usage.take()
        failed: list[str] = []
        error: StatusError = internal("")
        for quota in usage.charged():
            try:
                self.informer.remember(await self._client.update(RESOURCE_QUOTAS, quota, subresource="status"))
            except (StatusError, TransportError) as raised:
                failed.append(name_of(quota))
                error = raised if isinstance(raised, StatusError) else internal(str(raised))
                await self._look_again(quota, raised)
        return failed, error

    async def _look_again(self, quota: Object, why: Exception) -> None:
        """After a Conflict, read the quota into the informer, which may lag; log any other error."""
        if not isinstance(why, Conflict):
            logger.warning(
                "cannot write the usage of a ResourceQuota",
                extra={"namespace": namespace_of(quota), "quota": name_of(quota), "error": str(why)},
            )
            return
        try:
            self.informer.remember(await self._client.get(RESOURCE_QUOTAS, name_of(quota), namespace_of(quota)))
        except NotFound:
            return
        except (StatusError, TransportError) as error:
            logger.warning(
                "cannot read a ResourceQuota after a conflict; its cached copy may be old",
                extra={"namespace": namespace_of(quota), "quota": name_of(quota), "error": str(error)},
            )


class Usage:
    """Usage of a namespace's quotas in memory, with the creations counted so far."""

    def __init__(self, quotas: Sequence[Object], counted: str, hard: Sequence[Quantity], used: list[Quantity | None]) -> None:
        self._quotas = quotas
        self._counted = counted
        self._hard = hard
        self._used = used
        self._taken = 0

    @classmethod
    def of(cls, quotas: Sequence[Object], counted: str) -> Usage:
        """Return the usage of the resource ``counted`` in ``quotas``, which all limit it."""
        hard = [quantity.parse(str(each["status"]["hard"][counted])) for each in quotas]
        used = [dig(each, "status", "used", counted) for each in quotas]
        return cls(quotas, counted, hard, [None if each is None else quantity.parse(str(each)) for each in used])

    def check(self, attributes: Attributes) -> StatusError | None:
        """Return the refusal of one more object, or None."""
        for quota, hard, used in zip(self._quotas, self._hard, self._used, strict=True):
            if used is None:
                return forbidden(attributes, f"status unknown for quota: {name_of(quota)}, resources: {self._counted}")
            if used + _ONE > hard:
                asked, there, limit = (f"{self._counted}={each}" for each in (_ONE, used, hard))
                return forbidden(attributes, f"exceeded quota: {name_of(quota)}, requested: {asked}, used: {there}, limited: {limit}")
        return None

    def take(self) -> None:
        """Count one more in every quota, in memory."""
        self._taken += 1
        self._used = [None if each is None else each + _ONE for each in self._used]

    def charged(self) -> list[Object]:
        """Return copies of the quotas with their new usage; empty if :meth:`take` added nothing."""
        if not self._taken:
            return []
        return [
            {**quota, "status": {**quota["status"], "used": {**quota["status"]["used"], self._counted: str(used)}}}
            for quota, used in zip(self._quotas, self._used, strict=True)
        ]


def count_name(resource: Resource) -> str:
    """Return a resource's count in quotas: ``count/virtualmachines.kubevirt.io``."""
    return f"count/{resource.plural}.{resource.group}" if resource.group else f"count/{resource.plural}"


def counts(quota: Object, counted: str) -> bool:
    """Return whether a quota's status limits this count; scoped ones (for pods) do not."""
    spec = quota.get("spec") or {}
    return dig(quota, "status", "hard", counted) is not None and not spec.get("scopes") and not spec.get("scopeSelector")
