"""The guardian of a node: renews the promise, asks for attestations when it is cut off, and gives the deadline to the killers."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from apiserver.apis.core.resources import LEASES
from apiserver.apis.meta import errors, times
from apiserver.apis.meta.objects import Object, annotations_of
from apiserver.apis.virt import guards
from apiserver.apis.virt.guards import Promise, Times
from apiserver.apis.virt.places import names
from apiserver.client.rest import TransportError
from controller.runtime.clock import Clock
from controller.runtime.leaderelection import Leases
from handler.guardian import attesting, decisions
from handler.guardian.decisions import Probe, Wait
from handler.guardian.killer import Killer

logger = logging.getLogger(__name__)

PEERS_SECONDS: Final = 20.0
"""Between reads of the other voters' Leases."""
WITHDRAW_SECONDS: Final = 20.0
Ask = Callable[[Mapping[str, Promise]], Awaitable[frozenset[str]]]


class Deadline(Protocol):
    """The methods of :class:`handler.guardian.deadline_file.DeadlineFile` used here."""

    def read(self) -> float | None: ...  # noqa: D102 - as in DeadlineFile
    def write(self, until: float | None) -> None: ...  # noqa: D102 - as in DeadlineFile


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of this guardian; ``address`` (HOST:PORT) and ``certificate`` (PEM) are for attestations."""

    name: str
    """Its node's name, or for a guardian without guests another one."""
    namespace: str
    """The Leases' namespace."""
    voters: tuple[str, ...]
    boot: str
    address: str = ""
    certificate: str = ""
    promises: bool = True
    """False: promise nothing, attest nothing, and take an earlier guardian's promise back."""
    times: Times = guards.DEFAULT


class Guardian:
    """Keeps a node's promise of when its guests end: renews the Lease, asks other guardians while cut off, and sets the deadlines.

    ``elapsed`` returns seconds of CLOCK_BOOTTIME; ``pods`` returns the uids of pods with processes of guests.
    """

    def __init__(
        self,
        client: Leases,
        settings: Settings,
        killer: Killer,
        deadline: Deadline,
        pods: Callable[[], Iterable[str]],
        clock: Clock,
        elapsed: Callable[[], float],
        ask: Ask = attesting.ask,
    ) -> None:
        self._client = client
        self._settings = settings
        self._killer = killer
        self._deadline = deadline
        self._pods = pods
        self._clock = clock
        self._elapsed = elapsed
        self._ask = ask
        self._seen = decisions.Seen()
        self._lease: Object | None = None
        self._sends: dict[str, float] = {}
        """When each renewal was sent that may be the written one, by serial."""
        self._voters: list[tuple[str, ...]] = []
        """The sets of voters that these renewals and the written one name."""
        self._peers: dict[str, Promise] = {}
        self._peers_read_at = decisions.NEVER
        self.state = decisions.State(sent=elapsed())  # an earlier guardian may have sent until now
        if (until := deadline.read()) is not None:  # an earlier guardian's promise holds
            self.state = decisions.confirmed(self.state, until - settings.times.promise)
            self._voters.append(settings.voters)
            killer.until = until

    def is_cut_off(self) -> bool:
        """Return whether this guardian attests that it is cut off: for ``Times.cut_off``, it sent no renewal that may be written."""
        return self._settings.promises and decisions.may_attest(self.state, self._elapsed(), self._settings.times)

    async def run(self) -> None:
        """Renew the promise, and ask the voters while cut off, until cancelled; then the promise stays (see :meth:`withdraw`)."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_repeat(self.step))
            tasks.create_task(_repeat(self.ask))

    async def step(self) -> float:
        """Send the next request, if it is due; return the seconds until the next step."""
        ended = self._killer.ended.is_set()
        step = decisions.next_step(self.state, self._elapsed(), self._settings.times, sealed=self._is_sealed(), ended=ended)
        if isinstance(step, Wait):
            return step.seconds
        return 0.0 if await self._attempt(self._probe if isinstance(step, Probe) else self._renew) else decisions.PROBE_SECONDS

    async def ask(self) -> float:
        """Ask the other voters whether they are cut off, if no renewal was confirmed for ``Times.cut_off``; return the seconds to the next.

        Extends the promise if a majority is, with this guardian.
        """
        asked, settings = self._elapsed(), self._settings
        if decisions.asks(self.state, asked, settings.times):
            cut_off = set(await self._ask(attesting.known(self._peers, settings.voters, settings.name)))
            if self.is_cut_off():
                cut_off.add(settings.name)
            if decisions.is_attested(cut_off, self._voters):
                self.state = decisions.attested(self.state, asked)
                self._extend()
            logger.info("asked the voters", extra={"cut off": sorted(cut_off)})
        return decisions.PROBE_SECONDS

    async def withdraw(self) -> None:
        """After :meth:`run`, take the promise back, so guests may run on without a guardian. Without an answer the deadline stays.

        A seal goes only after the guests that it ended.
        """
        until = self._elapsed() + WITHDRAW_SECONDS
        while (self.state.confirmed is not None or self._is_sealed()) and self._elapsed() < until:
            if await self._attempt(self._probe):
                if self._is_sealed():
                    await asyncio.sleep(decisions.PROBE_SECONDS)  # the killer looks
                if (not self._is_sealed() or self._killer.ended.is_set()) and await self._attempt(self._take_back):
                    return
            await asyncio.sleep(decisions.PROBE_SECONDS)

    async def _take_back(self) -> None:
        """Write a Lease without a promise. A write in flight then fails, because the version changed."""
        await self._write(self._made(self._promise({}, withdrawn=True)))
        self._forget()

    def _forget(self) -> None:
        self._killer.until = None
        self._deadline.write(None)

    async def _write(self, wanted: Object) -> Object:
        if self._lease is None:
            return await self._client.create(LEASES, wanted, self._settings.namespace)
        return await self._client.update(LEASES, wanted)

    def _is_sealed(self) -> bool:
        return self._lease is not None and guards.is_sealed(self._lease)

    async def _attempt(self, request: Callable[[], Awaitable[None]]) -> bool:
        """Send a request; return whether it succeeded. After a failure the next must read the Lease: the server may yet carry it out."""
        try:
            async with asyncio.timeout(self._settings.times.request):
                await request()
        except (errors.StatusError, TransportError, TimeoutError, OSError) as error:
            self.state = replace(self.state, resolved=False)
            logger.warning("a request to kube-apiserver about the Lease failed", extra={"error": str(error) or "timeout"})
            return False
        self.state = replace(self.state, resolved=True)
        return True

    async def _probe(self) -> None:
        name, namespace = names.guardian_lease(self._settings.name), self._settings.namespace
        try:
            found = await self._client.get(LEASES, name, namespace)
        except errors.NotFound:
            self._lease = None
            return
        promise = guards.promise_of(found)
        if promise is not None and (sent := self._sends.get(promise.serial)) is not None:
            self._confirm(found, sent)
        self._lease = found
        if promise is not None and promise.voters not in self._voters:
            self._voters.append(promise.voters)
        if guards.is_sealed(found):
            self._killer.doom(frozenset(promise.pods if promise is not None else ()))
            if promise is None or not promise.pods:
                self._killer.ended.set()

    async def _renew(self) -> None:
        """Write the Lease, at first without a promise, because guests end after a promise; with ``Settings.promises`` False always."""
        beats, before = await self._beats(), self.state
        is_first = before.confirmed is None and not before.proven
        promise = self._promise(beats, withdrawn=is_first or not self._settings.promises)
        wanted = self._made(promise)
        sent = self._elapsed()
        self._sends[promise.serial] = sent
        if promise.voters not in self._voters:
            self._voters.append(promise.voters)
        self.state = decisions.sending(self.state, sent)
        if before.confirmed is None and not promise.withdrawn:  # it may be written without an answer
            self.state = decisions.confirmed(self.state, sent)
            self._extend()
        try:
            written = await self._write(wanted)
        except BaseException as error:
            self._failed(error, promise.serial, before)
            raise
        self.state = decisions.written(self.state, self._elapsed())
        self._confirm(written, sent)
        await self._read_peers()

    def _failed(self, error: BaseException, serial: str, before: decisions.State) -> None:
        if not decisions.is_refusal(error):
            self.state = decisions.unanswered(self.state, self._elapsed())
            return
        del self._sends[serial]
        self.state = decisions.refused(self.state, before)
        if self.state.confirmed is None:
            self._forget()

    def _confirm(self, written: Object, sent: float) -> None:
        """Record a renewal sent at this time as written. No older one can be written now."""
        promise = guards.promise_of(written)
        if self._is_sealed() and not guards.is_sealed(written):
            logger.warning("removed the seal: no earlier guest runs")
        self._lease = written
        self._sends.clear()
        self._voters = [self._settings.voters]
        self._killer.doom(frozenset())
        self.state = replace(self.state, unanswered=0, proven=promise is not None and promise.withdrawn and self._settings.promises)
        if promise is not None and promise.withdrawn:
            self.state = replace(self.state, confirmed=None, attested=None)
            self._forget()
        else:
            self.state = decisions.confirmed(self.state, sent)
            self._extend()

    def _extend(self) -> None:
        until = decisions.deadline(self.state, self._settings.times)
        if until is not None:
            self._killer.until = until
            self._deadline.write(until)

    def _made(self, promise: Promise) -> Object:
        settings, now = self._settings, times.to_rfc3339_micro(self._clock.now())
        return guards.lease(settings.name, settings.namespace, promise, now, self._lease, settings.times)

    def _promise(self, beats: Mapping[str, str], *, withdrawn: bool = False) -> Promise:
        self._seen = decisions.seen(self._seen, self._pods(), self._elapsed())
        settings = self._settings
        return Promise(
            serial=str(uuid.uuid4()),
            boot=settings.boot,
            pods=tuple(sorted(self._seen.at)),
            voters=settings.voters,
            beats=beats,
            address=settings.address,
            certificate=settings.certificate,
            withdrawn=withdrawn,
            virtual=not settings.promises,
        )

    async def _beats(self) -> dict[str, str]:
        try:
            found = annotations_of(await self._client.get(LEASES, guards.BEATS_LEASE, self._settings.namespace))
        except errors.NotFound:
            return {}
        beats = {key.removeprefix(guards.BEAT_PREFIX): value for key, value in found.items() if key.startswith(guards.BEAT_PREFIX)}
        return dict(list(beats.items())[: guards.MAX_BEATS])

    async def _read_peers(self) -> None:
        now = self._elapsed()
        if now - self._peers_read_at < PEERS_SECONDS:
            return
        for name in self._settings.voters:
            if name != self._settings.name:
                try:
                    found = await self._client.get(LEASES, names.guardian_lease(name), self._settings.namespace)
                except errors.NotFound:
                    continue
                if (promise := guards.promise_of(found)) is not None:
                    self._peers[name] = promise
        self._peers_read_at = now


async def _repeat(work: Callable[[], Awaitable[float]]) -> None:
    while True:
        pause = await work()
        await asyncio.sleep(pause)
