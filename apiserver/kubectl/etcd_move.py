"""``kubectl virt move-etcd``: move etcd and its data to another node without losing data.

``docs/operating/releases.md`` has the steps. One pod, and one volume of its claim, exclude a second etcd. The next run
finishes an interrupted one.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from apiserver.apis.meta.objects import Object, annotations_of, dig
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.kubectl import etcd_move_plan as planning
from apiserver.kubectl.access import Selection
from apiserver.kubectl.calling import Kubectl
from apiserver.kubectl.etcd_move_plan import BUSYBOX, CLAIM, POD, RECORD, STATEFUL_SET, Move
from apiserver.kubectl.messages import Failure

API_SERVICE: Final = f"{VIRTUAL_MACHINES.version}.{VIRTUAL_MACHINES.group}"
START: Final = "5m"
"""Includes an image pull."""
TRIES: Final = 3
"""A connection may end early without error."""


async def run(selection: Selection, node: str) -> None:
    """Move etcd's data to a node, or finish an interrupted move. Raises Failure; another run may then finish the move."""
    cluster = Kubectl(selection)
    namespace = selection.namespace or await _namespace(cluster)
    await _Mover(cluster, Kubectl(selection, namespace), namespace).move(node)


async def _namespace(cluster: Kubectl) -> str:
    found = dig(await cluster.get("apiservice", API_SERVICE), "spec", "service", "namespace")
    if not found:
        raise Failure(f"error: APIService {API_SERVICE} not found: set --namespace to the namespace of the installation")
    return str(found)


class _Mover:
    def __init__(self, cluster: Kubectl, kubectl: Kubectl, namespace: str) -> None:
        self._cluster = cluster
        self._kubectl = kubectl
        self._namespace = namespace

    async def move(self, node: str) -> None:
        stateful_set = await self._kubectl.get("statefulset", STATEFUL_SET)
        if stateful_set is None:
            raise Failure(f"error: statefulset/{STATEFUL_SET} not found in namespace {self._namespace}")
        move = await self._begun_or_new(stateful_set, node)
        if move is None:
            print(f"etcd's data is already on node {node}")
            return
        began = time.monotonic()
        try:
            if planning.host_of(await self._volume(move)) == move.source:
                began = await self._copy(move, stateful_set)
            await self._go_over(move)
            print(f"etcd runs on node {move.target}; it was unavailable for {time.monotonic() - began:.0f} s")
            await self._put_aside(move, stateful_set)
            await self._write_record(None)
        finally:
            await self._delete_pods("--wait=false")

    async def _go_over(self, move: Move) -> None:
        try:
            await self._exchange(move)
            print(f"starting etcd on node {move.target}")
            await self._scale(1)
            await self._kubectl("rollout", "status", f"statefulset/{STATEFUL_SET}", f"--timeout={START}")
        except Failure as failure:
            said = f"{failure}\netcd is not running yet. Its data is complete on both nodes; run the same command again to finish the move."
            raise Failure(said) from failure

    async def _begun_or_new(self, stateful_set: Object, node: str) -> Move | None:
        found = await self._cluster.get("node", node)
        if found is None:
            raise Failure(f"error: node {node} not found")
        begun = planning.recorded(stateful_set)
        if begun is not None:
            if begun.target != planning.node_label(found):
                raise Failure(
                    f"error: an earlier move of etcd to node {begun.target} is unfinished: finish it first with --to {begun.target}"
                )
            print(f"finishing the earlier move from node {begun.source}")
            return begun
        claim = await self._kubectl.get("persistentvolumeclaim", CLAIM)
        volume = await self._cluster.get("persistentvolume", str(dig(claim, "spec", "volumeName") or "none"))
        if volume is None:
            raise Failure(f"error: the claim {CLAIM} in namespace {self._namespace} has no volume")
        return planning.begin(volume, found)

    async def _volume(self, move: Move) -> Object | None:
        return await self._cluster.get("persistentvolume", move.volume["metadata"]["name"])

    async def _copy(self, move: Move, stateful_set: Object) -> float:
        """Stop etcd and copy its data; return the stop's monotonic time. After a failure, start etcd where it was."""
        await self._start("from", move, stateful_set)
        await self._start("to", move, stateful_set)
        if RECORD not in annotations_of(stateful_set) and await self._in("to", planning.EXISTS):
            place = f"{move.path}/{planning.CURRENT}"
            raise Failure(f"error: node {move.target} already has data of another etcd in {place}; rename or remove it first")
        copied = False
        began = time.monotonic()
        try:
            await self._write_record(move)
            print(f"stopping etcd on node {move.source}")
            await self._scale(0)
            await self._kubectl("wait", "--for=delete", f"pod/{POD}", "--timeout=2m")
            print(f"copying its data to node {move.target}")
            await self._transfer()
            copied = True
        finally:
            if not copied:
                print(f"starting etcd on node {move.source} again")
                await self._scale(1)
                with suppress(Failure):  # it would seem another etcd's
                    await self._in("to", planning.CLEAR)
                await self._write_record(None)
        return began

    async def _transfer(self) -> None:
        wanted = _lines(await self._in("from", planning.sums(planning.CURRENT)))
        if not wanted:
            raise Failure("error: found no etcd data on the node that etcd is to leave; nothing was copied")
        for _ in range(TRIES):
            await self._in("to", planning.CLEAR)
            await self._kubectl.pipe(_exec("from", planning.PACK), _exec("to", planning.UNPACK, "--stdin"))
            if _lines(await self._in("to", planning.sums(planning.STAGED))) == wanted:
                await self._in("to", planning.ADOPT)
                return
        raise Failure("error: the copy is incomplete or differs; the connection to the cluster may break early: try again")

    async def _exchange(self, move: Move) -> None:
        volume = await self._volume(move)
        if planning.host_of(volume) == move.target:
            return
        await self._kubectl("delete", "persistentvolumeclaim", CLAIM, "--ignore-not-found", "--timeout=2m")
        await self._cluster("delete", "persistentvolume", move.volume["metadata"]["name"], "--ignore-not-found", "--timeout=2m")
        await self._cluster("create", "--filename=-", given=move.volume)

    async def _put_aside(self, move: Move, stateful_set: Object) -> None:
        suffix = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        try:
            await self._start("from", move, stateful_set)
            await self._in("from", planning.retire(suffix))
        except Failure as failure:
            print(f"rename or remove {move.path}/{planning.CURRENT} on node {move.source} yourself: {failure}")

    async def _start(self, role: str, move: Move, stateful_set: Object) -> None:
        name = planning.pod_name(role)
        if dig(await self._kubectl.get("pod", name), "status", "phase") != "Running":
            await self._kubectl("delete", "pod", name, "--ignore-not-found", "--timeout=2m")
            await self._kubectl("create", "--filename=-", given=planning.copying_pod(role, move, stateful_set))
        await self._kubectl("wait", "--for=condition=Ready", f"pod/{name}", f"--timeout={START}")

    async def _delete_pods(self, *flags: str) -> None:
        await self._kubectl("delete", "pod", *map(planning.pod_name, ("from", "to")), "--ignore-not-found", *flags)

    async def _in(self, role: str, command: str) -> str:
        return await self._kubectl(*_exec(role, command))

    async def _scale(self, replicas: int) -> None:
        await self._kubectl("scale", f"statefulset/{STATEFUL_SET}", f"--replicas={replicas}")

    async def _write_record(self, move: Move | None) -> None:
        patch = {"metadata": {"annotations": {RECORD: move.to_json() if move is not None else None}}}
        await self._kubectl("patch", f"statefulset/{STATEFUL_SET}", "--type=merge", f"--patch={json.dumps(patch)}")


def _exec(role: str, command: str, *flags: str) -> tuple[str, ...]:
    return ("exec", *flags, planning.pod_name(role), "--container=copy", "--", BUSYBOX, "sh", "-c", command)


def _lines(text: str) -> list[str]:
    return sorted(text.splitlines())
