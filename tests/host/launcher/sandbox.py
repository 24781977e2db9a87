"""virt-launcher as in its pod: own mount namespace, uid 107, no capabilities, the paths of ``places.layout``."""

from __future__ import annotations

import copy
import fcntl
import os
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import libvirt

import launcher
from apiserver.apis.virt.places import layout
from launcher.protocol import codec, messages
from tests import booting
from tests.given_time import LOOK_SECONDS, Deadline
from tests.guest_kernel import KERNEL_ARGS
from tests.host.launcher.guest import Guest, tiny_kernel
from tests.host.launcher.image import entry_point
from tests.testbed import emulator
from tests.testbed import passt as testbed_passt

T = TypeVar("T")

PYTHON = "/usr/bin/python3"
"""The development environment's may be closed to uid 107."""
AS_FIRST_PROCESS = f"""
import ctypes, os
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: QEMU becomes its child, as in a pod; libvirt waits until it is reaped
os.execv("{PYTHON}", ["{PYTHON}", "-m", "launcher"])
"""
KERNEL_BOOT = {"container": {"kernelPath": "vmlinux", "initrdPath": "initrd"}, "kernelArgs": KERNEL_ARGS}
DEBIAN_KERNEL_BOOT = {**KERNEL_BOOT, "container": {"kernelPath": "vmlinuz", "initrdPath": "initrd"}}
"""With Debian's bzImage, as a BIOS and UEFI start it."""
TINY_KERNEL_BOOT = {"container": {"kernelPath": "tiny"}}
READY = "GUEST-READY\r\n# "
NO_GRAPHICS: dict[str, Any] = {"graphics": [], "interfaces": []}


def a_machine(name: str = "testvm", **domain: Any) -> messages.Machine:
    specification = {
        "memory": {"guest": "128Mi"},
        "machine": {"type": "q35"},
        "firmware": {"kernelBoot": KERNEL_BOOT},
        "devices": NO_GRAPHICS,
    }
    own = copy.deepcopy({**specification, **domain})
    return messages.Machine("default", name, "7b1f4a0e-0000-4000-8000-000000000001", own, "qemu", (), 20.0)


def a_tiny_machine(name: str = "testvm", run: str = "", **domain: Any) -> messages.Machine:
    """Return a small VM with the tiny kernel, which first runs ``run`` (docs/development/testbed.md, "Images")."""
    arguments = {"kernelArgs": f"guest.run={run}"} if run else {}
    return a_machine(name, **{"firmware": {"kernelBoot": {**TINY_KERNEL_BOOT, **arguments}}, **domain})


def install(target: Path) -> None:
    top = Path(launcher.__file__).parents[1]
    for name in ("launcher", "importer", "apiserver/apis"):
        shutil.copytree(top / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    (target / "certs").mkdir()
    for name in ("apiserver/__init__.py", "apiserver/logs.py", "certs/__init__.py", "certs/contexts.py"):
        shutil.copy(top / name, target / name)
    for path in Path(libvirt.__file__).parent.glob("libvirt*"):
        if path.is_file():
            shutil.copy(path, target)
    # By the Python that runs it, next to the source, because this process may keep its bytecode elsewhere (PYTHONPYCACHEPREFIX).
    subprocess.run([PYTHON, "-m", "compileall", "-qq", target], env={"PATH": os.environ["PATH"]}, check=True)
    subprocess.run(["chmod", "-R", "a+rX", target], check=True)


class Launcher:
    def __init__(
        self,
        program: Path,
        directory: Path,
        guest: Guest,
        *,
        first: bool = False,
        disks: str = "",
        state: Path | None = None,
        hugepages: bool = False,
        virtiofsd: Path | None = None,
        passt: Path | None = None,
        filesystems: str = "",
        environment: Mapping[str, str] | None = None,
        network: str = "",
        resolv_conf: str = "",
        macvtaps: bool = False,
        saves: Path | None = None,
    ) -> None:
        """Start virt-launcher.

        Args:
            program: the result of :func:`install`.
            directory: for all files of this pod.
            guest: Linux for VMs that boot it; the tiny kernel is next to it.
            first: run it as process 1 of a PID namespace, by its image's entry point.
            disks: size of the disks' file system, in mount's notation; by default the machine's own file system.
            state: the claim of ``firmware.persistentState``; by default a new one.
            hugepages: with a volume of 2 MiB huge pages.
            virtiofsd: directory with virtiofsd and its libraries, for ``/usr/libexec``.
            passt: the same with passt, for ``tests.testbed.passt.PLACE``.
            filesystems: as ``disks``, for the shared file systems.
            network: its network namespace, where it may open taps; by default the machine's own.
            resolv_conf: the kubelet's text; by default the machine's own.
            saves: the claim of ``spec.managedSave``.
            macvtaps: show the links of its network namespace in /sys, where libvirt looks for them.
        """
        self._first = first
        self.run_directory = directory / "run"
        self.disks = directory / "disks"
        self.images = self.disks if disks else directory / "images"
        self.sources = directory / "sources"
        self.nbd_secret = directory / "nbd-secret"
        self.access_credentials = directory / "access-credentials"
        self.import_secrets = directory / "import-secrets"
        self.import_authorities = directory / "import-authorities"
        self.state = state or directory / "state"
        self.filesystems = directory / "filesystems"
        secrets = (self.nbd_secret, self.access_credentials, self.import_secrets, self.import_authorities)
        for path in dict.fromkeys((self.disks, self.images, self.sources, *secrets, self.filesystems, self.state)):
            path.mkdir(parents=True, exist_ok=path == state)
            os.chown(path, layout.USER_ID, layout.USER_ID)
        if disks:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={disks},mode=0777", "none", self.disks], check=True)
        self.devices = directory / "devices"
        self.devices.mkdir()
        self.plugin_disks = directory / "plugin-disks"
        self.plugin_disks.mkdir()  # virt-handler gives it to root
        self.overlays = directory / "overlays"
        self.overlays.mkdir()
        self.overlays.chmod(0o777)
        if filesystems:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={filesystems},mode=0777", "none", self.filesystems], check=True)
        self._mounted: list[Path] = [*([self.disks] if disks else []), *([self.filesystems] if filesystems else [])]
        made = layout.Volume(layout.MADE_VOLUME, layout.MADE_DIRECTORY, 64 << 20)
        for volume in (*layout.IN_MEMORY, made):
            self._mount(volume, directory / volume.name)
        self._hugepages = directory / layout.HUGEPAGES_VOLUME
        if hugepages:
            self._hugepages.mkdir()
            subprocess.run(["mount", "-t", "hugetlbfs", "-o", "pagesize=2M,mode=0777", "none", self._hugepages], check=True)
            self._mounted.append(self._hugepages)
        self.log = directory / "log"
        self._resolver = directory / "resolv.conf"
        if resolv_conf:
            self._resolver.write_text(resolv_conf)
        passwd = directory / "passwd"
        passwd.write_text(f"root:x:0:0::/root:/bin/sh\nqemu:x:{layout.USER_ID}:{layout.USER_ID}::/:/bin/sh\n")
        binds = (
            (program, "/var/lib/kubevirt/program"),
            (self.disks, layout.DISKS_DIRECTORY),
            (self.devices, layout.DEVICES_DIRECTORY),
            (self.images, layout.IMAGES_DIRECTORY),
            (self.overlays, layout.OVERLAYS_DIRECTORY),
            (self.plugin_disks, layout.PLUGIN_DISKS_DIRECTORY),
            (self.sources, layout.SOURCES_DIRECTORY),
            (self.nbd_secret, layout.NBD_TLS_DIRECTORY),
            (self.access_credentials, layout.ACCESS_CREDENTIALS_DIRECTORY),
            (self.filesystems, layout.FILESYSTEMS_DIRECTORY),
            (self.import_secrets, layout.IMPORT_SECRETS_DIRECTORY),
            (self.import_authorities, layout.IMPORT_AUTHORITIES_DIRECTORY),
            (directory / made.name, made.directory),
            (self.state, layout.STATE_DIRECTORY),
            *([(saves, layout.MANAGED_SAVE_DIRECTORY)] if saves else []),
            *([(self._hugepages, layout.HUGEPAGES_DIRECTORY)] if hugepages else []),
            *([(virtiofsd, "/usr/libexec")] if virtiofsd else []),
            *([(passt, testbed_passt.PLACE)] if passt else []),
            *((directory / volume.name, volume.directory) for volume in layout.IN_MEMORY),  # /tmp last: it hides earlier mounts
        )
        wrapper = passt / testbed_passt.WRAPPER if passt else emulator.write_wrapper(directory)
        kernels = (*(guest.directory / name for name in ("vmlinuz", "vmlinux", "initrd")), tiny_kernel())
        uid = layout.USER_ID
        command = [*entry_point()[:-1], PYTHON, "-m", "launcher"] if first else [PYTHON, "-c", AS_FIRST_PROCESS]
        script = [
            "set -e",
            *(["mount -t proc proc /proc"] if first else []),
            *(["mount -t sysfs -o ro none /sys"] if macvtaps else []),
            "mount -t tmpfs none /run",
            "mount -t tmpfs none /var/lib",
            f"mount --bind {shlex.quote(str(passwd))} /etc/passwd",
            *([f"mount --bind {shlex.quote(str(self._resolver))} /etc/resolv.conf"] if self._resolver.exists() else []),
            "mount -t tmpfs none /var/cache",
            f"mkdir -p {layout.KERNEL_BOOT_DIRECTORY} && cd {layout.KERNEL_BOOT_DIRECTORY}",
            *(f"touch {path.name} && mount --bind {shlex.quote(str(path))} {path.name}" for path in kernels),
            "cd /",
            *([f"mount --bind {shlex.quote(str(self._tun(directory)))} /dev/net/tun"] if network else []),
            f"mount --bind {emulator.PROGRAM} {emulator.PLACE}",
            f"mount --bind {shlex.quote(str(wrapper))} {emulator.PROGRAM}",
            *(f"mkdir -p {inside} && mount --bind {shlex.quote(str(outside))} {inside}" for outside, inside in binds),
            *(f"mount -o remount,bind,ro {path}" for path in ("/run", "/var/lib", "/var/cache", "/")),  # readOnlyRootFilesystem
            f"exec setpriv --reuid {uid} --regid {uid} --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs"
            f" env -i PATH=/usr/bin:/bin:{testbed_passt.PLACE} PYTHONPATH=/var/lib/kubevirt/program MALLOC_ARENA_MAX=1"
            f" {shlex.join(f'{name}={value}' for name, value in (environment or {}).items())}"
            f" {shlex.join(command)}",
        ]
        with self.log.open("wb") as log:
            namespaces = ["--mount", *(["--pid", "--fork", "--kill-child"] if first else [])]
            inside = ["nsenter", f"--net=/run/netns/{network}"] if network else []
            arguments = [*inside, "unshare", *namespaces, "--propagation", "private", "sh", "-c", "\n".join(script)]
            self.process = subprocess.Popen(arguments, stdout=log, stderr=log, cwd="/", start_new_session=True)

    def _mount(self, volume: layout.Volume, path: Path) -> None:
        path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={volume.size},mode=0777", "none", path], check=True)
        self._mounted.append(path)

    @staticmethod
    def _tun(directory: Path) -> Path:
        node = directory / "tun"
        os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(10, 200))
        node.chmod(0o666)
        return node

    @property
    def made(self) -> Path:
        return self.run_directory.parent / layout.MADE_VOLUME

    def client(self) -> Client:
        return Client(self.socket(layout.LAUNCHER_SOCKET))

    def console(self, port: int = 0) -> Viewer:
        return Viewer(self.socket(layout.console_socket(port)), tuple if self._first else self.qemu)

    def socket(self, name: str, seconds: float = 20.0) -> socket.socket:
        path = self.run_directory / name

        def connect() -> socket.socket | None:
            connection = socket.socket(socket.AF_UNIX)
            directory = os.open(path.parent, os.O_PATH)  # sun_path is short, paths of tests are long
            try:
                connection.connect(f"/proc/self/fd/{directory}/{path.name}")
            except OSError:
                connection.close()
                return None
            finally:
                os.close(directory)
            return connection

        try:
            return wait_for(connect, seconds, name)
        except AssertionError as error:
            raise AssertionError(f"{error}; the log: {self.log.read_text()[-2000:]}") from error

    def first_process(self, seconds: float = 20.0) -> int:
        """Wait until process 1 of the PID namespace is Python, or its entry point blocks SIGTERM; return its pid outside."""

        def begun() -> int:
            children = self._children()
            if not children:
                return 0
            try:
                status = dict(line.split(":", 1) for line in Path(f"/proc/{children[0]}/status").read_text().splitlines())
                command = Path(f"/proc/{children[0]}/cmdline").read_bytes().split(b"\0")[0].decode()
            except (FileNotFoundError, ProcessLookupError):  # the process that prepares the namespaces does not count
                return 0
            held_back = int(status["SigBlk"], 16) & 1 << signal.SIGTERM - 1
            return children[0] if command == PYTHON or (command == entry_point()[0] and held_back) else 0

        return wait_for(begun, seconds, "the entry point")

    def _children(self) -> list[int]:
        return [int(pid) for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()]

    def libvirtd(self) -> int:
        """Wait for libvirtd's pid and return it; a restarted libvirtd briefly leaves its pid file empty."""
        return wait_for(lambda: pids_in(self.run_directory / "libvirt/libvirtd.pid"), 20, "libvirtd's pid")[0]

    def qemu(self) -> list[int]:
        paths = [path for path in (self.run_directory / "libvirt/qemu/run").glob("*.pid") if path.name != "driver.pid"]
        return [pid for path in paths for pid in pids_in(path) if alive(pid)]

    def wait(self, seconds: float = 20.0) -> int:
        wait_for(lambda: self.process.poll() is not None, seconds, "the launcher's end")
        return self.process.wait()

    def kill(self) -> None:
        if self.process.poll() is None:
            namespace = namespace_of(self.process.pid)
            children = self._children() if self._first else []  # a PID namespace ends with its first process
            self.process.kill()
            self.process.wait()
            pids = children if self._first else processes_in(namespace)
        else:
            pids = [] if self._first else [*self.qemu(), *owners(self.run_directory / "libvirt/libvirtd.pid")]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while self._mounted:
            subprocess.run(["umount", "--lazy", self._mounted.pop()], check=False)


def pids_in(path: Path) -> list[int]:
    with suppress(FileNotFoundError, ValueError):
        return [int(path.read_text())]
    return []


def namespace_of(pid: int) -> str:
    with suppress(OSError):  # it may be gone
        return str(Path(f"/proc/{pid}/ns/mnt").readlink())
    return ""


def processes_in(namespace: str) -> list[int]:
    """Return the pids of the processes in a mount namespace; none if it is unknown (empty) or this process' own."""
    if namespace in ("", namespace_of(os.getpid())):
        return []
    pids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    return [pid for pid in pids if namespace_of(pid) == namespace]


def owners(path: Path) -> list[int]:
    """Return the pid in a file that its process locks while it runs, because the number may be another process's later."""
    with suppress(FileNotFoundError), path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return pids_in(path)
    return []


class Client:
    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._receiver = codec.replies()
        self._received: list[messages.FromLauncher] = []
        self._id = 0
        hello = self.next()
        assert isinstance(hello, messages.Hello)
        self.status = hello.status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._socket.close()

    def next(self, seconds: float = 30.0) -> messages.FromLauncher:
        deadline = Deadline(seconds)
        while not self._received:
            left = deadline.left
            if left <= 0:
                raise TimeoutError(f"no message within {seconds} s")
            self._socket.settimeout(min(left, LOOK_SECONDS))
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                continue
            if not data:
                raise EOFError
            self._received += self._receiver.receive(data)
        message = self._received.pop(0)
        if not isinstance(message, messages.Content):
            self.status = message.status
        return message

    def read(self, what: str, seconds: float = 60.0) -> str:
        self._id += 1
        self._socket.sendall(codec.encode(messages.Call(self._id, messages.Read(what))))
        while True:
            message = self.next(seconds)
            if isinstance(message, messages.Refusal) and message.id == self._id:
                raise AssertionError(f"{what}: {message.reason}: {message.message}")
            if isinstance(message, messages.Content) and message.id == self._id:
                return message.text

    def call(self, request: messages.Request, seconds: float = 60.0) -> messages.Reply | messages.Refusal:
        if isinstance(request, messages.Sync) and booting.boots_slowly(request.machine.domain):
            booting.SLOTS.begin()
        self.send(request)
        while True:
            message = self.next(seconds)
            if isinstance(message, messages.Reply | messages.Refusal) and message.id == self._id:
                return message

    def send(self, request: messages.Request) -> None:
        self._id += 1
        self._socket.sendall(codec.encode(messages.Call(self._id, request)))

    def ask(self, request: messages.Request) -> messages.Status:
        answer = self.call(request)
        assert isinstance(answer, messages.Reply), answer
        return answer.status

    def until(self, condition: Callable[[messages.Status], Any], seconds: float = 30.0) -> messages.Status:
        deadline = Deadline(seconds)
        while not condition(self.status):
            left = deadline.left
            if left <= 0:
                raise TimeoutError(f"not within {seconds} s; the last status: {self.status}")
            with suppress(TimeoutError):
                self.next(min(left, LOOK_SECONDS))
        return self.status


class Viewer:
    def __init__(self, connection: socket.socket, guests: Callable[[], Iterable[int]] = tuple) -> None:
        """Attach to the console; timeouts count time given to the QEMU processes with pids ``guests``."""
        self._socket = connection
        self._guests = guests
        self.seen = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._socket.close()

    def expect(self, text: str, seconds: float = 40.0) -> str:
        """Return all unread output, ending with ``text``. AssertionError after ``seconds`` given to the guest, or the console's end."""
        wanted = text.encode()
        deadline = Deadline(seconds, self._guests)
        while wanted not in self.seen:
            left = deadline.left
            if left <= 0:
                raise AssertionError(f"{text!r} not seen in {self.seen[-2000:]!r}")
            self._socket.settimeout(min(max(0.01, left), LOOK_SECONDS))
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                continue
            if not data:
                raise AssertionError(f"the console ended; {text!r} not seen in {self.seen[-500:]!r}")
            self.seen += data
        end = self.seen.index(wanted) + len(wanted)
        before, self.seen = self.seen[:end], self.seen[end:]
        if booting.READY in text:
            booting.SLOTS.end()
        return before.decode(errors="replace")

    def type(self, text: str) -> None:
        self._socket.sendall(text.encode())

    def ask(self, command: str) -> str:
        """Type a command in the tiny guest; return all unread output before the next prompt, with the command's echo."""
        self.type(f"{command}\n")
        return self.expect("# ").removesuffix("# ").replace("\r", "").strip()

    def sh(self, command: str) -> str:
        self.type(f"echo B''EGIN; {command}; echo E''ND\n")
        self.expect("BEGIN")
        return self.expect("END").removesuffix("END").replace("\r", "").strip()


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for(condition: Callable[[], T | None], seconds: float, what: str) -> T:
    deadline = Deadline(seconds)
    while not (value := condition()):
        assert not deadline.is_over, f"waited {seconds} s for {what}"
        time.sleep(0.02)
    return value


@contextmanager
def killed_afterwards(launchers: list[Launcher]) -> Iterator[None]:
    try:
        yield
    finally:
        for item in launchers:
            item.kill()
