"""One dnsmasq per pod: started in the pod's network namespace, found again after a restart of virt-handler, ended with the pod.

A dnsmasq that outlived its pod would keep the pod's network namespace and its address alive. Which processes are ours is read from
``/proc``, not from memory: the pid file's name on the command line carries the pod's uid, and the namespace is compared, so a
restarted virt-handler finds what an earlier one started, and :meth:`Servers.sweep` ends what belongs to no pod any more.

A pod may end while its server is being started. So only one thing at a time is done to the server of a pod: a start is neither ended
half-way, which would look like a server that fails for no reason, nor missed by the end because it is no dnsmasq yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from handler.network import namespaces

logger = logging.getLogger(__name__)

STATE_DIRECTORY: Final = Path("/run/kubevirt-handler")
END_SECONDS: Final = 5.0
START_SECONDS: Final = 5.0
WORDS_SECONDS: Final = 1.0
MAX_WORDS: Final = 2000
_PID_FILE: Final = "--pid-file="


@dataclass(frozen=True, slots=True)
class Server:
    """A running dnsmasq of ours."""

    pid: int
    pod_uid: str
    command: tuple[str, ...]
    namespace: tuple[int, int]


class Servers:
    """The DHCP servers of this node's pods."""

    def __init__(self, state: Path = STATE_DIRECTORY, proc: Path = Path("/proc")) -> None:
        self._state = state
        self._proc = proc
        self._children: dict[int, asyncio.subprocess.Process] = {}
        self._turns: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        """By uid of the pod, for as long as somebody holds or waits for it."""

    def pid_file(self, pod_uid: str) -> str:
        """Return the pid file that marks the server of this pod."""
        return str(self._state / f"dnsmasq-{pod_uid}.pid")

    async def ensure(self, pod_uid: str, namespace: int, command: Sequence[str]) -> None:
        """See to it that exactly this server runs in this namespace for this pod.

        Raises:
            CommandFailed: it does not stay up.
        """
        async with self._turn(pod_uid):
            self._reap()
            here = namespaces.identity(namespace)
            others = [server for server in self.running() if server.pod_uid == pod_uid]
            if any(server.command == tuple(command) and server.namespace == here for server in others):
                return
            for server in others:
                await self._end(server)
            await self._start(pod_uid, namespace, command)

    async def end(self, pod_uid: str) -> None:
        """End the server of a pod, if there is one, also one that is being started."""
        async with self._turn(pod_uid):
            for server in self.running():
                if server.pod_uid == pod_uid:
                    await self._end(server)

    async def sweep(self, is_wanted: Callable[[str], bool]) -> None:
        """End every server whose pod's uid is not wanted."""
        for server in self.running():
            if not is_wanted(server.pod_uid):
                logger.info("ending a DHCP server that outlived pod %s", server.pod_uid)
                await self.end(server.pod_uid)

    def _turn(self, pod_uid: str) -> asyncio.Lock:
        return self._turns.setdefault(pod_uid, asyncio.Lock())

    def running(self) -> list[Server]:
        """Return the servers that run, whoever started them."""
        return list(self._scan())

    def _scan(self) -> Iterator[Server]:
        prefix = f"{_PID_FILE}{self._state}/dnsmasq-"
        for directory in self._proc.iterdir():
            if not directory.name.isdecimal():
                continue
            try:
                command = (directory / "cmdline").read_bytes().rstrip(b"\0").decode(errors="replace").split("\0")
                if command[0] != "dnsmasq" or not (directory / "exe").readlink().name.startswith("dnsmasq"):
                    continue
                mark = next((word for word in command if word.startswith(prefix)), "")
                found = (directory / "ns/net").stat()
            except OSError:  # it ended meanwhile
                continue
            if mark:
                pod_uid = mark.removeprefix(prefix).removesuffix(".pid")
                yield Server(int(directory.name), pod_uid, tuple(command), (found.st_dev, found.st_ino))

    async def _start(self, pod_uid: str, namespace: int, command: Sequence[str]) -> None:
        self._forget(pod_uid)
        child = await asyncio.create_subprocess_exec(
            *namespaces.inside(namespace, command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=(namespace,),
        )
        try:
            # dnsmasq writes its pid file once its sockets are bound; before that the guest could ask in vain.
            async with asyncio.timeout(START_SECONDS):
                while not self._is_up(pod_uid) and child.returncode is None:  # noqa: ASYNC110 - a file has no event
                    await asyncio.sleep(0.005)
        except BaseException as error:
            await _kill(child)
            if isinstance(error, TimeoutError):
                raise namespaces.CommandFailed(f"the DHCP server of pod {pod_uid} did not become ready") from error
            raise
        if child.returncode is not None:
            raise namespaces.CommandFailed(f"the DHCP server of pod {pod_uid} ended: {await _last_words(child)}")
        self._children[child.pid] = child

    async def _end(self, server: Server) -> None:
        try:
            pidfd = os.pidfd_open(server.pid)
        except ProcessLookupError:
            return
        try:
            if server not in self.running():  # the number may be another process' by now
                return
            for sent in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, sent)
                if await _gone(pidfd):
                    break
        finally:
            os.close(pidfd)
            self._forget(server.pod_uid)
        if (child := self._children.pop(server.pid, None)) is not None:
            await child.wait()

    def _forget(self, pod_uid: str) -> None:
        self._state.mkdir(mode=0o700, parents=True, exist_ok=True)
        Path(self.pid_file(pod_uid)).unlink(missing_ok=True)

    def _is_up(self, pod_uid: str) -> bool:
        return Path(self.pid_file(pod_uid)).exists()

    def _reap(self) -> None:
        self._children = {pid: child for pid, child in self._children.items() if child.returncode is None}


async def _gone(pidfd: int) -> bool:
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(pidfd, gone.set)
    try:
        async with asyncio.timeout(END_SECONDS):
            await gone.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(pidfd)
    return True


async def _last_words(child: asyncio.subprocess.Process) -> str:
    """Return how a child ended and all that it said: dnsmasq writes an empty line first, and what comes at once is only that."""
    said = b""
    if child.stderr is not None:
        with contextlib.suppress(TimeoutError):  # somebody else may hold the other end of the pipe
            async with asyncio.timeout(WORDS_SECONDS):
                while len(said) < MAX_WORDS and (more := await child.stderr.read(MAX_WORDS)):
                    said += more
    words = said[:MAX_WORDS].decode(errors="replace").strip() or "it said nothing"
    status = child.returncode or 0
    return f"{words} ({f'signal {-status}' if status < 0 else f'exit status {status}'})"


async def _kill(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
