"""Container images without a registry: OCI archives in the cache, imported into every node.

An archive's name has a digest of its sources, so unchanged images are neither built nor imported again.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures

from tests.testbed import bill, build, layout, nodes, oci, progress

BUSYBOX = "localhost/testbed/busybox:1"
COREDNS = "localhost/testbed/coredns:1"
_BUSYBOX = pathlib.Path("/bin/busybox")
_COMMANDS = (
    "sh",
    "ls",
    "cat",
    "echo",
    "sleep",
    "wget",
    "nslookup",
    "httpd",
    "nc",
    "ip",
    "ping",
    "mount",
    "grep",
    "dd",
    "cp",
    "gzip",
    "sync",
    "id",
    "test",
    "stat",
    "tar",
    "md5sum",
    "cmp",
    "mkdir",
    "rm",
    "touch",
    "chmod",
    "hostname",
)


@dataclasses.dataclass(frozen=True)
class Image:
    """An image: reference, sources' digest, and a function that writes its archive."""

    reference: str
    digest: str
    make: Callable[[pathlib.Path], None]
    below: "Image | None" = None
    """The image with all layers but the last; the archive leaves these out."""

    @property
    def prefix(self) -> str:
        return self.reference.rpartition("/")[2].partition(":")[0] + "-"

    @property
    def archive(self) -> pathlib.Path:
        return layout.cache() / "images" / f"{self.prefix}{self.digest}.tar"

    @property
    def chain(self) -> list["Image"]:
        return [*(self.below.chain if self.below else ()), self]


def digest_of(parts: Iterable[str | bytes | pathlib.Path]) -> str:
    """Return a hash of texts, bytes, and files at or below paths (name, content, executable bits)."""
    content = hashlib.sha256()
    for part in parts:
        if isinstance(part, pathlib.Path):
            for file in sorted(part.rglob("*")) if part.is_dir() else [part]:
                if file.is_file() and "__pycache__" not in file.parts:
                    content.update(f"{file.relative_to(part.parent)}\0{file.stat().st_mode & 0o111}\0".encode() + file.read_bytes())
        else:
            content.update(part.encode() if isinstance(part, str) else part)
        content.update(b"\0")
    return content.hexdigest()[:12]


def _of_program(
    reference: str, program: pathlib.Path, path: str, *, links: dict[str, str] | None = None, also: dict[str, pathlib.Path] | None = None
) -> Image:
    files = {path: program, **(also or {})}
    return Image(
        reference,
        digest_of([str(sorted(files)), str(sorted((links or {}).items())), *(file.resolve() for file in files.values())]),
        lambda archive: oci.write(archive, reference, files, [f"/{path}"], links=links),
    )


def of_the_cluster() -> list[Image]:
    return [
        _of_program(nodes.SANDBOX_IMAGE, build.program("pause"), "pause"),
        _of_program(COREDNS, build.program("coredns"), "coredns"),
    ]


def busybox() -> Image:
    """Return the image of tests that need a shell in a pod; ``fetch`` asks web servers."""
    return _of_program(
        BUSYBOX,
        _BUSYBOX,
        "bin/busybox",
        links={f"bin/{command}": "busybox" for command in _COMMANDS},
        also={"bin/fetch": build.program("fetch")},
    )


def ensure(wanted: Iterable[Image]) -> list[Image]:
    images = list(wanted)
    with futures.ThreadPoolExecutor(2) as pool:
        for _ in pool.map(_ensure, images):
            pass
    return images


def title(image: Image) -> str:
    return f"Build image {image.reference}"


def is_built(image: Image) -> bool:
    if image.below is None or not image.archive.exists():
        return image.archive.exists()
    return is_built(image.below) and oci.lies_on(image.archive, image.below.archive)


def _ensure(image: Image) -> None:
    for each in image.chain:
        with locked(each):
            if not is_built(each):
                _make(each)


@contextlib.contextmanager
def locked(image: Image) -> Iterator[None]:
    """Lock out other writers. A holder may lock images below, not above."""
    image.archive.parent.mkdir(parents=True, exist_ok=True)
    with (image.archive.parent / f".{image.prefix}lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(image: Image) -> None:
    with progress.step(title(image)):
        image.make(image.archive)
    for older in image.archive.parent.glob(f"{image.prefix}{'[0-9a-f]' * 12}.tar"):
        if older != image.archive:
            older.unlink(missing_ok=True)
            bill.path_of(older).unlink(missing_ok=True)


def import_into_nodes(images: Iterable[Image]) -> None:
    chosen = list(images)
    with futures.ThreadPoolExecutor(len(layout.NODES)) as pool:
        for _ in pool.map(lambda node: _import(node, chosen), layout.NODES):
            pass


def _import(node: layout.Node, images: Iterable[Image]) -> None:
    absent = absent_of(images, present_on(node))
    if absent:
        with progress.step(f"Import {', '.join(image.reference.rpartition('/')[2] for image in absent)} on {node.name}"):
            for image, identifier in absent.items():
                progress.run(nodes.ctr(node, "images", "import", "--local", image.archive))
                # The kubelet mounts image volumes by the image's identifier. containerd sets this name when a reference is new, but not
                # when an import changes its content.
                progress.run(nodes.ctr(node, "images", "tag", "--force", "--local", "--skip-reference-check", image.reference, identifier))


def absent_of(images: Iterable[Image], present: Mapping[str, str]) -> dict[Image, str]:
    """Return images to import, in order, with identifiers. ``present``: digests by name."""
    absent: dict[Image, str] = {}
    for image in images:
        manifest, identifier = _digests(image.archive)
        if present.get(image.reference) != manifest or present.get(identifier) != manifest:
            # Lower layers are separate images, which stay for the next version.
            absent |= {**absent_of([image.below] if image.below else [], present), image: identifier}
    return absent


def present_on(node: layout.Node) -> dict[str, str]:
    lines = progress.output_of(nodes.ctr(node, "images", "list")).splitlines()[1:]
    return {words[0]: words[2] for line in lines if len(words := line.split()) > 2}


def _digests(archive: pathlib.Path) -> tuple[str, str]:
    return oci.digest_of(archive), str(oci.manifest_of(archive)["config"]["digest"])
