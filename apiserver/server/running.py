"""One process: storage, cluster, server and signals."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Self

from apiserver.client.config import Config
from apiserver.client.informer import Informer
from apiserver.client.rest import Client
from apiserver.endpoints.filters.authentication import Authenticator, Trust
from apiserver.endpoints.filters.authorization import AllowAll, CachingAuthorizer, Delegated
from apiserver.endpoints.filters.impersonation import Impersonation
from apiserver.endpoints.filters.limits import InFlight
from apiserver.endpoints.filters.origins import Origins
from apiserver.endpoints.filters.tokens import TokenReview
from apiserver.endpoints.filters.withdrawing import Withdrawing
from apiserver.metrics.instruments import Registry
from apiserver.registry.generic.strategy import Strategy
from apiserver.server.admitting import Admitting, OwnPlugin, admitting
from apiserver.server.assembly import Assembly, assemble, now
from apiserver.server.metrics import Metrics
from apiserver.server.options import Options
from apiserver.server.serving import Listener
from apiserver.server.storage.storing import Storing
from apiserver.server.trusting import Trusting, config_map
from certs.files import write_file
from certs.reloading import Files, ServerTls
from storage.etcd.connection import Tls
from storage.etcd.store import EtcdStorage, Settings
from storage.memory import MemoryStorage
from storage.port import Storage

logger = logging.getLogger(__name__)

_SELF_SIGNED: Final = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Kinds:
    """Strategies, informers and admission plug-ins of the served kinds."""

    strategies: Sequence[Strategy]
    informers: Sequence[Informer] = ()
    plugins: Sequence[OwnPlugin] = ()


MakeKinds = Callable[[Client | None], Kinds]
"""None: without a cluster."""


async def run(options: Options, make_kinds: MakeKinds) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises OSError, ValueError or ConfigError for an unusable file, address, endpoint or kubeconfig, perhaps in an exception group.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop.set)
    async with running(options, make_kinds) as (host, port):
        logger.info("serving", extra={"address": f"https://{host}:{port}", "storage": options.storage})
        await stop.wait()


@asynccontextmanager
async def running(options: Options, make_kinds: MakeKinds, storage: Storage | None = None) -> AsyncIterator[tuple[str, int]]:
    """Serve during the block; yield host and port. Leaving shuts down in order. ``storage`` None: by the options.

    Raises the errors of :func:`run`.
    """
    async with AsyncExitStack() as stack:
        process = await built(options, make_kinds, storage, stack)
        async with process.serving() as address:
            yield address


@dataclass(frozen=True, slots=True)
class Process:
    """A server's connected parts. They run during :meth:`serving`."""

    options: Options
    tls: ServerTls
    storing: Storing
    trusting: Trusting
    admission: Admitting
    informers: Sequence[Informer]
    assembly: Assembly
    listener: Listener
    registry: Registry

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[tuple[str, int]]:
        """Serve during the block; yield host and port; shut down at its end. Errors come in an exception group."""
        options, listener = self.options, self.listener
        async with asyncio.TaskGroup() as tasks:
            address = await listener.listen(options.bind_address, options.secure_port, self.tls)
            self.registry.add(*listener.families())
            background = [tasks.create_task(each) for each in self.background()]
            gc.collect()
            gc.freeze()  # permanent objects
            try:
                yield address
            finally:
                await listener.stop(delay=options.shutdown_delay_duration, not_ready=self.assembly.not_ready)
                for each in background:
                    each.cancel()

    def background(self) -> list[Coroutine[Any, Any, None]]:
        """Return the coroutines to run while the server serves."""
        return [
            *(each.run() for each in self.assembly.caches),
            *(each.run() for each in self.informers),
            *(each.run() for each in self.admission.sources),
            self.tls.run(),
            self.trusting.run(),
            *self.assembly.background(),
            *self.storing.background(),
        ]


@dataclass(frozen=True, slots=True)
class _Clients:
    cluster: Client | None
    authenticating: Client | None
    authorizing: Client | None

    @classmethod
    async def entered(cls, options: Options, stack: AsyncExitStack) -> Self:
        """Create the clients, which ``stack`` closes. A purpose without its own kubeconfig uses the cluster's client, or None."""

        async def of(kubeconfig: str | None, otherwise: Client | None) -> Client | None:
            return otherwise if kubeconfig is None else await stack.enter_async_context(_client(kubeconfig))

        cluster = await stack.enter_async_context(_client(options.kubeconfig)) if options.asks_cluster else None
        return cls(cluster, await of(options.authentication_kubeconfig, cluster), await of(options.authorization_kubeconfig, cluster))


async def built(options: Options, make_kinds: MakeKinds, storage: Storage | None, stack: AsyncExitStack) -> Process:
    """Build a Process by the options, without running it; ``stack`` closes its parts. ``storage`` None: by the options."""
    clients = await _Clients.entered(options, stack)
    kept = storage or _storage(options)
    stack.push_async_callback(kept.close)
    storing = Storing(kept, options.keeping, root=options.etcd_prefix, file_seconds=options.times.files, kms_seconds=options.times.kms)
    tls = ServerTls(_serving_files(options), clients=ssl.CERT_OPTIONAL, interval=options.times.files)
    metrics = Metrics(root=options.etcd_prefix)
    storing.register(metrics.registry)
    for followed in {clients.cluster, clients.authenticating, clients.authorizing}:
        if followed is not None:
            metrics.delegation.follow(followed)
    kinds = make_kinds(clients.cluster)
    authenticator = _authenticator(options, clients.authenticating, metrics)
    trusting = Trusting(tls, authenticator, options.client_ca_file, options.times.files)
    authorizer = _authorizer(options, clients.authorizing, metrics)
    admission = admitting(options, clients.cluster, kinds.strategies, metrics.registry, authorizer, kinds.plugins)
    await stack.enter_async_context(admission.caller)
    needed = list(admission.informers)
    if clients.authenticating is not None and not options.authentication_skip_lookup:
        trusted = config_map(clients.authenticating)
        trusting.subscribe(trusted)
        needed.append(trusted)
    assembly = assemble(
        kinds.strategies,
        storing.storage,
        root=options.etcd_prefix.rstrip("/"),
        admission=admission.admission,
        authenticator=authenticator,
        authorizer=authorizer,
        in_flight=InFlight(options.max_requests_inflight, options.max_mutating_requests_inflight),
        metrics=metrics,
        probes=(storing.healthy, storing.ready),
        impersonation=Impersonation(authorizer),
        origins=Origins(options.cors_allowed_origins),
        withdrawing=Withdrawing(
            authenticator, authorizer, check_seconds=options.times.stream_check, shared_seconds=options.times.stream_shared
        ),
        request_seconds=options.request_timeout,
        informers=needed,
        stream_limits=options.stream_limits,
    )
    for plugin in kinds.plugins:
        plugin.follow(assembly.stores)
    listener = Listener(
        assembly.chain, assembly.watches, assembly.streams, options.connections, options.times.connections, options.times.watches_end
    )
    informers = [*needed, *kinds.informers]
    return Process(options, tls, storing, trusting, admission, informers, assembly, listener, metrics.registry)


def _authenticator(options: Options, client: Client | None, metrics: Metrics) -> Authenticator:
    return Authenticator(
        trust=Trust(),
        now=now,
        review=_reviewer(options, client, metrics),
        anonymous=options.anonymous_auth,
        expiry=metrics.delegation.expiry.cell(),
    )


def _authorizer(options: Options, client: Client | None, metrics: Metrics) -> CachingAuthorizer:
    if client is None or options.authorization_mode != "Delegated":
        return AllowAll()
    seconds = options.authorization_webhook_cache_authorized_ttl, options.authorization_webhook_cache_unauthorized_ttl
    return Delegated(client, metrics.delegation.authorized, seconds=seconds)


def _reviewer(options: Options, client: Client | None, metrics: Metrics) -> TokenReview | None:
    if client is None:
        return None
    seconds = options.authentication_token_webhook_cache_ttl
    return TokenReview(client, metrics.delegation.authenticated, metrics.delegation.tokens, seconds=seconds)


def _serving_files(options: Options) -> Files:
    """Return the serving certificate's files; without any, create one for development, as Go does."""
    if options.tls_cert_file is not None and options.tls_private_key_file is not None:
        return Files(options.tls_cert_file, options.tls_private_key_file)
    files = Files(options.cert_dir / "apiserver.crt", options.cert_dir / "apiserver.key")
    if not files.certificate.exists() or not files.key.exists():
        # Late: its own OpenSSL takes about 10 MiB.
        from certs.issuing import Profile, issue, new_authority

        options.cert_dir.mkdir(parents=True, exist_ok=True)
        made = now()
        authority = new_authority("localhost-ca", _SELF_SIGNED, made)
        profile = Profile("localhost", dns_names=("localhost",), ip_addresses=("127.0.0.1", "::1"), server=True)
        pair = issue(authority, profile, _SELF_SIGNED, made)
        write_file(files.certificate, pair.certificate + authority.certificate)
        write_file(files.key, pair.key)
        logger.warning("created a self-signed serving certificate", extra={"file": str(files.certificate)})
    return files


def _client(kubeconfig: str | None) -> Client:
    return Client(Config.load(kubeconfig), user_agent="virt-api")


def _storage(options: Options) -> Storage:
    if options.storage == "memory":
        return MemoryStorage()
    tls = None
    if options.etcd_cafile and options.etcd_certfile and options.etcd_keyfile:
        tls = Tls(options.etcd_cafile, options.etcd_certfile, options.etcd_keyfile)
    return EtcdStorage(Settings(options.etcd_servers, tls))
