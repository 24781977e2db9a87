"""A pod's network without Kubernetes: a namespace for the pod, one for a caller, and a stand-in for the guest."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import socket
import struct
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from handler.network import setup
from handler.pods.process import Launcher
from tests.given_time import LOOK_SECONDS, Deadline

T = TypeVar("T")

POD, CALLER = "10.99.0.2", "10.99.0.1"
POD6, CALLER6 = "fd99::2", "fd99::1"
_CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
_ETH_P_ALL = 3
NETWORKS: Final = setup.Networks()
"""Shared, because its plugins describe themselves once."""


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@dataclass(frozen=True)
class Pod:
    """A pod's network: eth0 (10.99.0.2, fd99::2), with its other end (10.99.0.1, fd99::1) in the namespace ``caller``."""

    name: str
    caller: str
    launcher: Launcher

    def inside(self, function: Callable[[], T]) -> T:
        return within(self.name, function)

    def outside(self, function: Callable[[], T]) -> T:
        return within(self.caller, function)


@contextmanager
def a_pod(families: tuple[int, ...] = (4, 6)) -> Iterator[Pod]:
    tag = uuid.uuid4().hex[:6]
    inner, outer = f"h7p{tag}", f"h7o{tag}"
    for name in (inner, outer):
        run("ip", "netns", "add", name)
    run("ip", "-n", outer, "link", "add", "peer", "type", "veth", "peer", "name", "eth0", "netns", inner)
    for name, link, addresses in ((inner, "eth0", (POD, POD6)), (outer, "peer", (CALLER, CALLER6))):
        if 4 in families:
            run("ip", "-n", name, "address", "add", f"{addresses[0]}/24", "dev", link)
        if 6 in families:
            run("ip", "-n", name, "address", "add", f"{addresses[1]}/64", "dev", link, "nodad")
    for name, link in ((inner, "eth0"), (inner, "lo"), (outer, "peer")):
        run("ip", "-n", name, "link", "set", link, "up")
    if 4 in families:
        run("ip", "-n", inner, "route", "add", "default", "via", CALLER)
    if 6 in families:
        run("ip", "-n", inner, "-6", "route", "add", "default", "via", CALLER6)
    with subprocess.Popen(["ip", "netns", "exec", inner, "sleep", "300"]) as sleeper:
        network = os.open(f"/run/netns/{inner}", os.O_RDONLY)
        launcher = Launcher(sleeper.pid, os.pidfd_open(sleeper.pid), network, os.open("/", os.O_PATH))
        try:
            yield Pod(inner, outer, launcher)
        finally:
            launcher.close()
            sleeper.kill()
    for name in (inner, outer):
        run("ip", "netns", "del", name)


def addresses_beside(number: int) -> tuple[str, str]:
    return f"10.99.{number}.2", f"fd99:{number}::2"


@contextmanager
def a_pod_beside(first: Pod, number: int) -> Iterator[Pod]:
    name = f"{first.name}{number}"
    run("ip", "netns", "add", name)
    run("ip", "-n", first.caller, "link", "add", f"peer{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
    address, address6 = addresses_beside(number)
    router, router6 = f"{address[:-1]}1", f"{address6[:-1]}1"
    for namespace, link, own, own6 in ((name, "eth0", address, address6), (first.caller, f"peer{number}", router, router6)):
        run("ip", "-n", namespace, "address", "add", f"{own}/24", "dev", link)
        run("ip", "-n", namespace, "address", "add", f"{own6}/64", "dev", link, "nodad")
        run("ip", "-n", namespace, "link", "set", link, "up")
    run("ip", "-n", name, "route", "add", "default", "via", router)
    run("ip", "-n", name, "-6", "route", "add", "default", "via", router6)
    for setting in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        run("ip", "netns", "exec", first.caller, "sh", "-c", f"echo 1 >/proc/sys/net/{setting}")
    with subprocess.Popen(["ip", "netns", "exec", name, "sleep", "300"]) as sleeper:
        network = os.open(f"/run/netns/{name}", os.O_RDONLY)
        launcher = Launcher(sleeper.pid, os.pidfd_open(sleeper.pid), network, os.open("/", os.O_PATH))
        try:
            yield Pod(name, first.caller, launcher)
        finally:
            launcher.close()
            sleeper.kill()
    run("ip", "netns", "del", name)


@contextmanager
def a_pod_of_the_bridge_plugin(directory: Path) -> Iterator[Pod]:
    tag = uuid.uuid4().hex[:6]
    inner, outer = f"h7p{tag}", f"h7o{tag}"
    for name in (inner, outer):
        run("ip", "netns", "add", name)
        run("ip", "-n", name, "link", "set", "lo", "up")
    ranges = [[{"subnet": "10.99.0.0/24"}], [{"subnet": "fd99::/64"}]]
    ipam = {"type": "host-local", "dataDir": str(directory), "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": ipam}
    configuration = json.dumps({"cniVersion": "1.0.0", "name": f"n{tag}", **bridge})
    variables = (f"CNI_CONTAINERID={tag}", f"CNI_NETNS=/run/netns/{inner}", "CNI_IFNAME=eth0", "CNI_PATH=/usr/lib/cni", "CNI_COMMAND=ADD")
    command = ["ip", "netns", "exec", outer, "env", *variables, "/usr/lib/cni/bridge"]
    subprocess.run(command, input=configuration, check=True, capture_output=True, text=True)
    with subprocess.Popen(["ip", "netns", "exec", inner, "sleep", "300"]) as sleeper:
        network = os.open(f"/run/netns/{inner}", os.O_RDONLY)
        launcher = Launcher(sleeper.pid, os.pidfd_open(sleeper.pid), network, os.open("/", os.O_PATH))
        try:
            yield Pod(inner, outer, launcher)
        finally:
            launcher.close()
            sleeper.kill()
    for name in (inner, outer):
        run("ip", "netns", "del", name)


def within(name: str, function: Callable[[], T]) -> T:
    def enter() -> T:
        namespace = os.open(Path("/run/netns") / name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(namespace)
        return function()

    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(enter).result()


def reset_counters(pod: Pod, table: str = "kubevirt") -> None:
    run("ip", "netns", "exec", pod.name, "nft", "reset", "counters", "table", "netdev", table)


class Tap:
    def __init__(self, pod: Pod, name: str = "tap0") -> None:
        self._file = pod.inside(lambda: os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
        fcntl.ioctl(self._file, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
        deadline = Deadline(10)
        while "state DOWN" in run("ip", "-n", pod.name, "link", "show", name, "up") and not deadline.is_over:
            time.sleep(0.01)

    def send(self, frame: bytes) -> bool:
        try:
            return os.write(self._file, frame) == len(frame)
        except OSError:
            return False

    def receive(self, wanted: Callable[[bytes], bool], seconds: float = 30.0) -> bytes:
        deadline = Deadline(seconds)
        while (left := deadline.left) > 0:
            if select.select([self._file], [], [], min(left, LOOK_SECONDS))[0] and wanted(frame := os.read(self._file, 4096)):
                return frame
        raise TimeoutError

    def drain(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while select.select([self._file], [], [], max(0.0, end - time.monotonic()))[0]:
            os.read(self._file, 4096)

    def close(self) -> None:
        os.close(self._file)


class Ear:
    def __init__(self, device: str) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._socket.bind((device, _ETH_P_ALL))

    def until(self, last: bytes, seconds: float = 30.0) -> list[bytes]:
        heard: list[bytes] = []
        self._socket.settimeout(seconds)
        while not heard or last not in heard[-1]:
            heard.append(self._socket.recv(4096))
        return heard

    def drain(self) -> None:
        self._socket.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(4096)

    def send(self, frame: bytes) -> None:
        self._socket.send(frame)

    def close(self) -> None:
        self._socket.close()
