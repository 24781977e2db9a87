"""virt-api: the generic server with the kinds of virtual machines."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import get_args

import uvloop

from apiserver import logs
from apiserver.apis.virt.places import names
from apiserver.apis.virt.places.streams import Stream
from apiserver.apis.virt.v1alpha1.allowed import Allowed
from apiserver.client.config import ConfigError
from apiserver.client.rest import Client
from apiserver.registry.generic.strategy import Connect, Read
from apiserver.registry.virt.handler_locator import HandlerLocator, handler_pods
from apiserver.registry.virt.handlers import Handlers
from apiserver.registry.virt.migration_policies import MigrationPolicyStrategy
from apiserver.registry.virt.migrations import MigrationStrategy
from apiserver.registry.virt.node_restriction import Addresses, NodeRestriction
from apiserver.registry.virt.pod_restriction import PodRestriction
from apiserver.registry.virt.reads import DomainXML, GuestInfo, Screenshot
from apiserver.registry.virt.replica_sets import ReplicaSetStrategy
from apiserver.registry.virt.revoking import RevokedNodes, trust_config
from apiserver.registry.virt.streams import HandlerStream
from apiserver.registry.virt.virtualmachines import VirtualMachineStrategy
from apiserver.server import running
from apiserver.server.admitting import OwnPlugin
from apiserver.server.assembly import now
from apiserver.server.options import Options, parse
from apiserver.server.running import Kinds
from certs.reloading import ClientTls, Files

logger = logging.getLogger(__name__)


def kinds(options: Options, client: Client | None, tls: ClientTls | None) -> Kinds:
    """Return our kinds' strategies, informers and plug-ins; streams and reads from nodes only with ``client`` and ``tls``."""
    connects: dict[str, Connect] = {}
    reads: dict[str, Read] = {}
    handlers: Handlers | None = None
    informers = []
    addresses: Addresses = _nowhere
    is_revoked: Callable[[str], bool] = _nobody
    if client is not None:
        pods = handler_pods(client, options.namespace)
        config = trust_config(client, options.namespace)
        informers += [pods, config]
        locate, revoked = HandlerLocator(pods), RevokedNodes(config)
        addresses, is_revoked = locate.addresses, revoked.is_revoked
        if tls is not None:
            connects = {each: HandlerStream(each, locate, lambda: tls.context, revoked) for each in get_args(Stream)}
            handlers = Handlers(locate, lambda: tls.context, revoked)
            reads = {each.name: each(handlers) for each in (GuestInfo, DomainXML, Screenshot)}
    username = options.handler_username or names.handler_username(options.namespace)
    restriction = NodeRestriction(username, required=options.require_node_claims, addresses=addresses, now=now, revoked=is_revoked)
    plugins: list[OwnPlugin] = [restriction]
    if client is not None:  # without a cluster there are no pods
        plugins.append(PodRestriction(client))
    allowed = Allowed(
        vsock=options.allow_vsock,
        macvtap=options.allow_macvtap,
        storage_plugins=frozenset(options.storage_plugins),
        host_disks=options.host_disks,
        network_plugins=frozenset(options.network_plugins),
    )
    machines = VirtualMachineStrategy(connects, reads, allowed, handlers)
    return Kinds((machines, MigrationStrategy(), MigrationPolicyStrategy(), ReplicaSetStrategy(allowed)), informers, plugins)


def _nowhere(_node: str) -> Sequence[str]:
    return ()


def _nobody(_node: str) -> bool:
    return False


async def serve(options: Options) -> None:
    """Run virt-api until SIGTERM or SIGINT. Raises OSError, ValueError or ConfigError, perhaps in an exception group."""
    directory = options.handler_tls_directory
    tls = ClientTls(Files.in_directory(directory)) if directory is not None else None
    async with AsyncExitStack() as stack:
        if tls is not None:
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            following = tasks.create_task(tls.run())
            stack.callback(following.cancel)
        await running.run(options, lambda client: kinds(options, client, tls))


def main() -> None:
    """Parse the flags, serve until a signal, and exit; with code 1 after logging why it cannot start."""
    options = parse()
    logs.configure(options.log_level, options.log_format)
    gc.set_threshold(50_000, 20, 20)
    code = 0
    try:
        uvloop.run(serve(options))
    except* (OSError, ValueError, ConfigError) as errors:
        for each in errors.exceptions:
            logger.error("virt-api cannot start", extra={"error": str(each)})  # noqa: TRY400 - the message is the answer, not a traceback
        code = 1
    sys.exit(code)  # outside, because Pythons before 3.11.4 group exceptions of `except*`


if __name__ == "__main__":
    main()
