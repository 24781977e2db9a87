#!/usr/bin/python3
"""A storage plugin that serves image files of a node's directory to guests.

virt-handler starts this program with KUBEVIRT_COMMAND in its environment; it passes the request to the node's daemon and prints the answer.
``images.py serve`` is that daemon, an NBD server with a socket in each disk's directory. It needs only the standard library of Python 3.11
or later.
"""

import contextlib
import json
import os
import re
import socket
import stat
import struct
import sys
import threading
from pathlib import Path
from typing import Any

Document = dict[str, Any]

VERSION = "1.0.0"
IMAGES = Path(os.environ.get("IMAGES", "/images"))
"""The image files and the daemon's persistent state."""
CONTROL = os.environ.get("CONTROL", str(Path(__file__).resolve().with_name("images.sock")))
"""The daemon's socket, in a node directory that the plugin also sees."""
PATIENCE_SECONDS = 10

TRY_AGAIN, NOT_POSSIBLE, INPUT_OUTPUT = 11, 7, 5


class PluginError(Exception):
    """An error, with the answer's ``code``."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def plugin(command: str) -> int:
    """Print the answer to virt-handler's command, the daemon's except for VERSION; return the exit status, 1 after an error.

    The request is on standard input.
    """
    request = json.load(sys.stdin)
    if command == "VERSION":
        answer: Document = {"supportedVersions": [VERSION], "kinds": ["storage"], "liveMigration": False}
    else:
        try:
            answer = ask({"command": command, "request": request})
        except OSError as error:
            answer = {"code": TRY_AGAIN, "msg": f"its daemon does not answer on this node: {error.strerror or error}"}
    json.dump({"version": VERSION, **answer}, sys.stdout)
    return 1 if "code" in answer else 0


def ask(question: Document) -> Document:
    """Return the daemon's answer to a command and request. Raises OSError or ValueError without one."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_SECONDS)
        connection.connect(CONTROL)
        with connection.makefile("rw") as stream:
            stream.write(json.dumps(question) + "\n")
            stream.flush()
            answer: Document = json.loads(stream.readline())
            return answer


class Daemon:
    """All served disks of this node."""

    def __init__(self) -> None:
        self.disks: dict[str, Disk] = {}
        self.lock = threading.Lock()
        self.state = IMAGES / ".served"
        self.state.mkdir(exist_ok=True)

    def restore(self) -> None:
        """Serve the previous daemon's disks again, because QEMU reconnects; print errors, and go on with the others."""
        for file in self.state.glob("*.json"):
            try:
                self.add(json.loads(file.read_text()))
            except (OSError, PluginError, ValueError, KeyError, TypeError) as error:  # the other disks are served
                print(f"{file.name}: {type(error).__name__}: {error}", file=sys.stderr)

    def answer(self, command: str, request: Document) -> Document:
        """Execute virt-handler's command; return the answer, after an error with ``code`` and ``msg``."""
        try:
            with self.lock:
                return {"ADD": self.add, "DEL": self.delete, "CHECK": self.check}[command](request)
        except PluginError as refused:
            return {"code": refused.code, "msg": str(refused)}
        except OSError as error:
            return {"code": INPUT_OUTPUT, "msg": str(error)}

    def add(self, request: Document) -> Document:
        """Serve the requested disk unless it is served; return its address. Raises PluginError, or OSError."""
        key, disk = key_of(request), request["disk"]
        name = disk["options"].get("image", "")
        if set(disk["options"]) != {"image"} or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise PluginError(NOT_POSSIBLE, "options: image has to be the name of an image file, and is the only one")
        if key not in self.disks:
            for other in self.disks.values():
                if other.image == name and not (other.read_only and disk["readOnly"]):
                    raise PluginError(TRY_AGAIN, f"image {name} is in use by another disk")
            served = Disk(name, request)
            try:
                self.keep(key, request)
            except OSError:
                served.close()
                raise
            self.disks[key] = served
        return {"disk": {"protocol": "nbd", "path": disk["socket"], "size": self.disks[key].size, "export": ""}}

    def keep(self, key: str, request: Document) -> None:
        """Store a request atomically, for :meth:`restore`."""
        new = self.state / f"{key}.new"
        with new.open("w") as file:
            file.write(json.dumps(request))
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.state / f"{key}.json")

    def delete(self, request: Document) -> Document:
        """Stop serving the requested disk; repeated calls succeed."""
        if (served := self.disks.pop(key_of(request), None)) is not None:
            served.close()
        for ending in ("json", "new"):
            self.state.joinpath(f"{key_of(request)}.{ending}").unlink(missing_ok=True)
        return {}

    def check(self, request: Document) -> Document:
        """Serve the requested disk unless it is served and its socket exists; raises as :meth:`add`."""
        served = self.disks.get(key_of(request))
        if served is not None and not os.path.exists(request["disk"]["socket"]):
            served.close()
            del self.disks[key_of(request)]
        self.add(request)
        return {}


def key_of(request: Document) -> str:
    """Return the key of a request's pod and disk, for :attr:`Daemon.disks` and file names."""
    return f"{request['pod']['uid']}-{request['disk']['name']}"


class Disk:
    """One image file, served at one socket."""

    def __init__(self, image: str, request: Document) -> None:
        self.image, self.read_only = image, request["disk"]["readOnly"]
        flags = os.O_RDONLY if self.read_only else os.O_RDWR
        try:
            # A file object closes with its last reference, so no thread finds another file under its descriptor.
            self.file = open(os.open(IMAGES / image, flags | os.O_NOFOLLOW | os.O_NONBLOCK), "rb", buffering=0)  # noqa: SIM115 - as above
        except FileNotFoundError:
            raise PluginError(TRY_AGAIN, f"there is no image {image} on this node") from None
        found = os.fstat(self.file.fileno())
        self.size = found.st_size
        if not stat.S_ISREG(found.st_mode) or not self.size or self.size % 512:
            raise PluginError(NOT_POSSIBLE, f"image {image} is no regular file of whole blocks of 512 bytes")
        self.connections: set[socket.socket] = set()
        self.listener = listener_at(Path(request["disk"]["socket"]), request["user"])
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        """Serve each client in its own thread: QEMU, and virt-handler, which reads the disk's size."""
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:  # closed
                return
            self.connections.add(connection)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        """Serve one client until it disconnects or violates the protocol."""
        with contextlib.suppress(OSError, EOFError, struct.error):
            negotiate(connection, self.size, self.read_only)
            transmit(connection, self.file.fileno(), self.size, self.read_only)
        self.connections.discard(connection)
        connection.close()

    def close(self) -> None:
        """Stop listening, and end all clients' connections."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def listener_at(path: Path, user: int) -> socket.socket:
    """Return a listening socket at a path of any length, in place of an old one; ``user`` becomes its owner and group."""
    listener = socket.socket(socket.AF_UNIX)
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)  # socket addresses have at most 108 bytes
    try:
        here = f"/proc/self/fd/{directory}/{path.name}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(here)
        listener.bind(here)
        os.chown(here, user, user)
    finally:
        os.close(directory)
    listener.listen(16)
    return listener


# NBD: https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md

OPTION_MAGIC, REPLY_MAGIC, REQUEST_MAGIC, ANSWER_MAGIC = 0x49484156454F5054, 0x3E889045565A9, 0x25609513, 0x67446698
EXPORT_NAME, ABORT, INFO, GO = 1, 2, 6, 7
ACKNOWLEDGED, EXPORT_INFO, UNSUPPORTED, UNKNOWN = 1, 3, 0x80000001, 0x80000006
READ, WRITE, DISCONNECT, FLUSH = range(4)
FUA = 1
LONGEST = 32 << 20
EPERM, EIO, EINVAL = 1, 5, 22


def negotiate(connection: socket.socket, size: int, read_only: bool) -> None:
    """Negotiate until the client selects the only export, with an empty name. Raises EOFError if it stops or breaks the protocol."""
    connection.sendall(b"NBDMAGIC" + struct.pack(">QH", OPTION_MAGIC, 3))
    (client,) = struct.unpack(">I", read(connection, 4))
    flags = 1 | 4 | 8 | (2 if read_only else 0)  # has flags, flush and FUA, read-only
    while True:
        magic, option, length = struct.unpack(">QII", read(connection, 16))
        if magic != OPTION_MAGIC or length > 4096:
            raise EOFError
        data = read(connection, length)
        if option == EXPORT_NAME:
            connection.sendall(struct.pack(">QH", size, flags) + (b"" if client & 2 else bytes(124)))
            return
        if option in (INFO, GO):
            (name,) = struct.unpack_from(">I", data)
            if name:
                reply(connection, option, UNKNOWN)
                continue
            reply(connection, option, EXPORT_INFO, struct.pack(">HQH", 0, size, flags))
            reply(connection, option, ACKNOWLEDGED)
            if option == GO:
                return
        elif option == ABORT:
            reply(connection, option, ACKNOWLEDGED)
            raise EOFError
        else:
            reply(connection, option, UNSUPPORTED)


def reply(connection: socket.socket, option: int, kind: int, data: bytes = b"") -> None:
    """Send an NBD reply of this kind to an option."""
    connection.sendall(struct.pack(">QIII", REPLY_MAGIC, option, kind, len(data)) + data)


def transmit(connection: socket.socket, file: int, size: int, read_only: bool) -> None:
    """Handle NBD requests until the client's disconnect request or a violation; EOFError if the connection ends."""
    while True:
        magic, flags, kind, cookie, offset, length = struct.unpack(">IHHQQI", read(connection, 28))
        if magic != REQUEST_MAGIC or kind == DISCONNECT or (length > LONGEST and kind in (READ, WRITE)):
            return
        data = read(connection, length) if kind == WRITE else b""
        error, answer = 0, b""
        if kind not in (READ, WRITE, FLUSH) or (kind != FLUSH and offset + length > size):
            error = EINVAL
        elif kind == WRITE and read_only:
            error = EPERM
        else:
            try:
                answer = carry_out(file, kind, offset, length, data)
                if kind == FLUSH or flags & FUA:
                    os.fdatasync(file)
            except OSError:
                error = EIO
        connection.sendall(struct.pack(">IIQ", ANSWER_MAGIC, error, cookie) + (b"" if error else answer))


def carry_out(file: int, kind: int, offset: int, length: int, data: bytes) -> bytes:
    """Read or write the image, for a flush neither; return the read bytes. Raises OSError."""
    if kind == READ:
        answer = os.pread(file, length, offset)
        if len(answer) != length:
            raise OSError(EIO, "the image has become shorter")
        return answer
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written
    return b""


def read(connection: socket.socket, length: int) -> bytes:
    """Read exactly ``length`` bytes; EOFError if the connection ends before."""
    found = bytearray()
    while len(found) < length:
        part = connection.recv(min(length - len(found), 1 << 20))
        if not part:
            raise EOFError
        found += part
    return bytes(found)


def serve() -> None:
    """Run the daemon: serve the disks, and answer the plugin at ``CONTROL``."""
    daemon = Daemon()
    daemon.restore()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(CONTROL)
    with socket.socket(socket.AF_UNIX) as control:
        control.bind(CONTROL)
        os.chmod(CONTROL, 0o600)
        control.listen(16)
        while True:
            connection, _ = control.accept()
            threading.Thread(target=one_question, args=(daemon, connection), daemon=True).start()


def one_question(daemon: Daemon, connection: socket.socket) -> None:
    """Answer the plugin's request on this connection; invalid ones get no answer."""
    with contextlib.suppress(OSError, ValueError), connection, connection.makefile("rw") as stream:
        question = json.loads(stream.readline())
        stream.write(json.dumps(daemon.answer(question["command"], question["request"])) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        sys.exit(plugin(os.environ.get("KUBEVIRT_COMMAND", "")))
