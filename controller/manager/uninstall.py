"""Shut down all guests before the chart is removed (``python -m controller.manager.uninstall``, the pre-delete hook).

It deletes VirtualMachineReplicaSets first, because they replace machines; then Migrations, because a migrating guest must arrive before it
can shut down; then VirtualMachines. If objects or pods are left after ``--timeout-seconds``, it fails, so Helm removes nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from apiserver.apis.core.resources import PODS
from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import Object, is_deleting, name_of, namespace_of, uid_of
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt.places import names
from apiserver.apis.virt.places.resources import MIGRATIONS, REPLICA_SETS, VIRTUAL_MACHINES
from apiserver.client.config import Config, ConfigError
from apiserver.client.rest import Client, TransportError
from controller.reconcilers import trimming
from controller.reconcilers.pods import ownership

POLL_SECONDS: Final = 2.0
SAY_EVERY: Final = 5
MAX_NAMED: Final = 20
PODS_AT_ONCE: Final = 10
"""Few, because tenants can create very large pods with our label, and these are read untrimmed."""


@dataclass(frozen=True, slots=True)
class Left:
    """The sets, Migrations, machines and guests' pods that still exist."""

    sets: tuple[Object, ...]
    migrations: tuple[Object, ...]
    machines: tuple[Object, ...]
    pods: tuple[Object, ...]

    def __bool__(self) -> bool:
        return bool(self.sets or self.migrations or self.machines or self.pods)

    def to_delete(self) -> tuple[tuple[Resource, Object], ...]:
        """Return what to delete now, as (resource, object), unless in deletion: all sets; if none exist, Migrations; then machines."""
        in_order = ((REPLICA_SETS, self.sets), (MIGRATIONS, self.migrations), (VIRTUAL_MACHINES, self.machines))
        resource, objects = next((pair for pair in in_order if pair[1]), (VIRTUAL_MACHINES, ()))
        return tuple((resource, each) for each in objects if not is_deleting(each))

    def summary(self) -> str:
        """Return the number of remaining objects of each kind, as a phrase."""
        objects = f"{len(self.machines)} virtual machines, {len(self.migrations)} migrations, {len(self.pods)} pods of guests"
        return f"{len(self.sets)} replica sets, {objects}" if self.sets else objects

    def named(self) -> str:
        """Return kinds and names as lines of text, up to ``MAX_NAMED`` of each kind."""
        kinds = (
            ("virtualmachinereplicaset", self.sets),
            ("virtualmachine", self.machines),
            ("migration", self.migrations),
            ("pod", self.pods),
        )
        lines = [f"  {kind} {namespace_of(each)}/{name_of(each)}" for kind, objects in kinds for each in objects[:MAX_NAMED]]
        return "\n".join(lines)


async def shut_down(client: Client, *, timeout_seconds: float, say: Callable[[str], None], poll_seconds: float = POLL_SECONDS) -> bool:
    """Delete all sets; once they are gone, all Migrations; then all machines. Return whether these and the guests' pods are gone in time.

    ``say`` prints progress. Errors of requests are retried.
    """
    left: Left | None = None
    trouble = ""
    turn = 0
    try:
        async with asyncio.timeout(timeout_seconds):
            while True:
                try:
                    left, trouble = await _observe(client), ""
                    if not left:
                        say("all guests have ended")
                        return True
                    await _delete(client, left)
                except errors.StatusError as error:
                    trouble = f"the API server rejected the request: {error}"
                except TransportError as error:
                    trouble = str(error)
                if turn % SAY_EVERY == 0:
                    say(trouble or f"waiting for {left.summary() if left else 'an answer'}")
                turn += 1
                await asyncio.sleep(poll_seconds)
    except TimeoutError:
        pass
    say(f"gave up after {timeout_seconds:g} s{f': {trouble}' if trouble else ''}")
    if left:
        say(f"still there: {left.summary()}\n{left.named()}")
    say("Nothing was removed. Check these with kubectl describe, then repeat `helm uninstall`; with --no-hooks, it leaves them running.")
    return False


async def _observe(client: Client) -> Left:
    async def items(resource: Resource) -> tuple[Object, ...]:
        try:
            return tuple((await client.list(resource)).get("items") or ())
        except errors.NotFound:  # the APIService is gone, but pods may still run
            return ()

    marked = f"{names.COMPONENT_LABEL}={names.LAUNCHER}"
    pods = await client.list(PODS, label_selector=marked, limit=PODS_AT_ONCE, trim=trimming.trim_pod)
    # Any pod can have our label. One controlled by a machine is deleted with it, regardless of its creator.
    owned = tuple(each for each in pods.get("items") or () if ownership.owner_of(each) is not None)
    return Left(await items(REPLICA_SETS), await items(MIGRATIONS), await items(VIRTUAL_MACHINES), owned)


async def _delete(client: Client, left: Left) -> None:
    for resource, each in left.to_delete():
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid_of(each)}}
        try:
            await client.delete(resource, name_of(each), namespace_of(each), options=options)
        except (errors.NotFound, errors.Conflict):
            continue


def parser() -> argparse.ArgumentParser:
    """Return the flags' parser."""
    flags = argparse.ArgumentParser(
        prog="python -m controller.manager.uninstall", description=("Shut down all guests and wait until they have ended.")
    )
    flags.add_argument("--timeout-seconds", type=float, default=300.0, help="seconds to wait for all guests together (default: 300)")
    flags.add_argument("--kubeconfig", help="a kubeconfig with certificates or a token; default: the pod's service account")
    return flags


async def _run(arguments: argparse.Namespace) -> int:
    def say(text: str) -> None:
        print(text, flush=True)  # noqa: T201  a command's answer

    config = Config.load(arguments.kubeconfig)
    async with Client(config, user_agent="kubevirt-uninstall") as client:
        return 0 if await shut_down(client, timeout_seconds=arguments.timeout_seconds, say=say) else 1


def main() -> int:
    """Run the command; return 0, 1 if not all is gone in time, 2 if the configuration is invalid."""
    logging.basicConfig(level=logging.WARNING)
    try:
        return asyncio.run(_run(parser().parse_args()))
    except ConfigError as error:
        print(f"cannot reach the API server: {error}", file=sys.stderr)  # noqa: T201  a command's answer
        return 2


if __name__ == "__main__":
    sys.exit(main())
