from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import select
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apiserver.apis.virt.places import names
from tests import booting
from tests.cluster.api import Api
from tests.given_time import LAST_RESORT_SECONDS, LOOK_SECONDS, Deadline, guests

ROOT = Path(__file__).parents[2]
STALE_SECONDS = 75
"""How long kube-apiserver misses an aggregated server's resources after a late answer: it reads the discovery every minute."""
_UNKNOWN = re.compile("no matches for kind|the server doesn't have a resource type")


class KubectlError(AssertionError):
    pass


@dataclass(frozen=True)
class Kubectl:
    kubeconfig: Path
    namespace: str
    binary: str = "kubectl"

    @property
    def environment(self) -> dict[str, str]:
        """kubectl is a fifth faster without early garbage collection."""
        path = f"{ROOT / '.venv/bin'}:{os.environ['PATH']}"
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "PATH": path, "GOGC": "off", "GOMEMLIMIT": "200MiB"}

    @property
    def api(self) -> Api:
        return Api(self.kubeconfig, self.namespace)

    def command(self, *arguments: str) -> list[str]:
        """Return kubectl's command line in our namespace; a plugin's flags must follow its name."""
        namespace = ["-n", self.namespace]
        if arguments[0] == "virt":
            return [self.binary, "virt", *namespace, *arguments[1:]]
        return [self.binary, *namespace, *arguments]

    def try_run(self, *arguments: str, stdin: str | None = None, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """The caller checks the exit status. Repeats while kubectl's discovery lacks our kinds."""
        done = self._run(*arguments, stdin=stdin, timeout=timeout)
        deadline = time.monotonic() + STALE_SECONDS
        while _UNKNOWN.search(done.stderr) and self._are_served() and time.monotonic() < deadline:
            print(f"[discovery is stale: kubectl {' '.join(arguments)}]")
            time.sleep(2)  # of up to a minute
            done = self._run(*arguments, stdin=stdin, timeout=timeout)
        return done

    def _are_served(self) -> bool:
        return not self._run("get", "--raw", f"/apis/{names.GROUP}/{names.VERSION}").returncode

    def _run(self, *arguments: str, stdin: str | None = None, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments), env=self.environment, input=stdin, capture_output=True, text=True, timeout=timeout, check=False
        )

    def __call__(self, *arguments: str, stdin: str | None = None, timeout: float = 60) -> str:
        done = self.try_run(*arguments, stdin=stdin, timeout=timeout)
        if done.returncode:
            why = f" ({self._availability()})" if _UNKNOWN.search(done.stderr) else ""
            raise KubectlError(f"kubectl {' '.join(arguments)}: exit status {done.returncode}: {done.stderr.strip()}{why}")
        return done.stdout

    def _availability(self) -> str:
        path = "jsonpath={range .status.conditions[*]}{.type} {.status} since {.lastTransitionTime}: {.message}{end}"
        said = self._run("get", "apiservice", f"{names.VERSION}.{names.GROUP}", "-o", path)
        pods = self._run("get", "pods", "-A", "-l", "kubevirt.io=virt-api", "--no-headers")
        return "; ".join((said.stdout + said.stderr + pods.stdout + pods.stderr).strip().splitlines())

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))

    def apply(self, *objects: dict[str, Any]) -> str:
        for each in objects:
            booting.begin_with(each)
        return self("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        booting.begin_with(manifest)
        created: dict[str, Any] = json.loads(self("create", "-o", "json", "-f", "-", stdin=json.dumps(manifest)))
        return created

    def edit(self, kind: str, name: str, editor: str) -> str:
        done = subprocess.run(
            self.command("edit", kind, name),
            env={**self.environment, "KUBE_EDITOR": editor},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            raise KubectlError(f"kubectl edit {kind} {name}: exit status {done.returncode}: {done.stderr}")
        return done.stdout

    def within(self, namespace: str) -> Kubectl:
        return Kubectl(self.kubeconfig, namespace, self.binary)


def eventually(look: Callable[[], Any], *, timeout: float, what: str, interval: float = 0.5) -> Any:
    deadline = Deadline(timeout)
    while True:
        value = look()
        if value:
            return value
        if deadline.is_over:
            raise AssertionError(f"{what}: not within {timeout:.0f} s; last seen: {value!r}")
        time.sleep(interval)


def until_in(kubectl: Kubectl, pod: str, check: str, *, timeout: float, what: str, container: str = "") -> None:
    """Wait in one run of kubectl until a shell command in a pod succeeds."""
    tries = int(max(timeout, LAST_RESORT_SECONDS) / 0.5)
    script = f"n=0; until {check}; do n=$((n+1)); [ $n -lt {tries} ] || exit 1; sleep 0.5; done"
    command = kubectl.command("exec", pod, *(("--container", container) if container else ()), "--", "sh", "-c", script)
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(command, env=kubectl.environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said) as process,
    ):
        deadline = Deadline(timeout)
        try:
            while process.poll() is None and not deadline.is_over:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(min(deadline.left, LOOK_SECONDS))
        finally:
            process.kill()
        status = process.wait()
        said.seek(0)
        assert status == 0, f"{what}: not within {timeout:.0f} s; exit status {status}; last output: {said.read()[-800:]!r}"


class Console:
    """``kubectl virt console`` in a pseudo-terminal, read like expect."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int, domain: str = "") -> None:
        """``domain``: libvirt's name of the guest; timeouts then count processor time available to its QEMU."""
        self.process = process
        self.text = ""
        self._domain = domain
        self._terminal = terminal

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def expect(self, pattern: str, *, timeout: float = 60) -> re.Match[str]:
        """Read until ``pattern`` matches; return the match, and drop the text up to its end. AssertionError if it does not in time.

        Every read repeats the search: a pattern that begins with ``.*`` takes quadratic time.
        """
        if not (found := re.search(pattern, self.text)):
            deadline = Deadline(timeout, lambda: guests(self._domain) if self._domain else ())
            while not (found := re.search(pattern, self.text)):
                remaining = deadline.left
                if remaining <= 0 or not self._read(min(remaining, LOOK_SECONDS)):
                    raise AssertionError(f"console did not show {pattern!r}; last: {self.text[-800:]!r}")
        self.text = self.text[found.end() :]
        if booting.READY in found.group(0):
            booting.SLOTS.end()
        return found

    def skip_replay(self) -> None:
        """Wait until the tiny guest answers a new command; later output is live."""
        word = f"live-{secrets.token_hex(4)}"
        self.expect("press Enter for a prompt")
        self.type(f"echo {word}\n")
        self.expect(word)

    def run(self, command: str, *, timeout: float = 60) -> str:
        """Run a shell command; return all unread text up to its end: perhaps a console's replay, then its echo and its output."""
        end = secrets.token_hex(4)
        self.type(f"{command}; echo E''ND-{end}\n")
        found = self.expect(rf"END-{end}\r?\n", timeout=timeout)
        return found.string[: found.start()]

    def _read(self, timeout: float) -> bool:
        ready, _, _ = select.select([self._terminal], [], [], timeout)
        if not ready:
            return True
        try:
            chunk = os.read(self._terminal, 65536)
        except OSError:  # EIO: the other side is closed
            return False
        self.text += chunk.decode(errors="replace")
        return bool(chunk)


@contextmanager
def console(kubectl: Kubectl, vm: str, *flags: str) -> Iterator[Console]:
    controller, terminal = os.openpty()
    process = subprocess.Popen(
        kubectl.command("virt", "console", vm, *flags),
        env=kubectl.environment,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    try:
        yield Console(process, controller, f"{kubectl.namespace}_{vm}")
        if process.poll() is None:
            os.write(controller, b"\x1d")
            process.wait(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(controller)


@contextmanager
def forwarded(kubectl: Kubectl, target: str, port: int) -> Iterator[int]:
    command = kubectl.command("port-forward", target, f":{port}")
    with subprocess.Popen(command, env=kubectl.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
            assert found, f"kubectl port-forward to {target} does not say its port"
            yield int(found[1])
        finally:
            process.terminate()


@contextmanager
def port_of_guest(kubectl: Kubectl, vm: str, port: str) -> Iterator[int]:
    command = kubectl.command("virt", "port-forward", vm, port if ":" in port else f":{port}")
    with subprocess.Popen(command, env=kubectl.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            found = re.search(r"127\.0\.0\.1:(\d+) -> ", process.stdout.readline())
            assert found, f"kubectl virt port-forward says no port: {process.stderr.read()}"
            yield int(found[1])
        finally:
            process.terminate()


def said_at(port: int) -> str:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        return connection.recv(100).decode().strip()
    return ""
