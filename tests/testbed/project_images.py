"""The project's own images, built from ``images/*/Containerfile`` by buildah, which needs neither a daemon nor a registry.

The base is Debian 13, made by mmdebstrap from this machine's apt mirror. uv fetches Python dependencies as wheels for the image's Python:
those of the process' extra in ``pyproject.toml``, pinned with hashes in ``images/<name>/requirements.txt``. Debian packages have the
versions of ``packages.lock`` while the mirror offers them. The source has the last two layers (:mod:`.source_layer`).
"""

import dataclasses
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import tomllib

from tests.testbed import bill, build, caching, images, installing, layout, oci, progress, source_layer

RELEASE = "trixie"
BASE_TITLE = "Make the Debian 13 base of the images"
PYTHON = "3.13"
_BASE = "localhost/kubevirt-build/debian:13"
_BASE_PACKAGES = "python3"
PACKAGES_PATH = f"usr/local/lib/python{PYTHON}/dist-packages"
_NOT_IN_IMAGES = ("kubectl",)
_CODE = (pathlib.Path(source_layer.__file__), pathlib.Path(oci.__file__))
_INSTALL_PACKAGES = layout.REPOSITORY / "images" / "install-packages.sh"


@dataclasses.dataclass(frozen=True)
class Process:
    """Contents of one of our images: an extra's wheels, some packages of the source, and a command."""

    name: str
    extra: str | None
    sources: tuple[str, ...]
    module: str


PROCESSES = (
    Process("virt-api", "api", ("apiserver", "storage", "certs"), "apiserver.server.__main__"),
    Process("virt-controller", "controller", ("controller", "apiserver", "certs"), "controller.manager.__main__"),
    Process("virt-handler", "handler", ("handler", "controller", "apiserver", "launcher", "certs"), "handler.__main__"),
    # Next to the guest there are only the launcher's own imports; its libvirt binding is Debian's.
    Process(
        "virt-launcher",
        None,
        ("launcher", "importer", "apiserver/__init__.py", "apiserver/logs.py", "apiserver/apis", "certs/__init__.py", "certs/contexts.py"),
        "launcher.__main__",
    ),
)
NAMES = (*(process.name for process in PROCESSES), "etcd", "testguest")
ON_REQUEST = ("debian",)


def reference_of(name: str) -> str:
    return f"localhost/kubevirt/{name}:dev"


def name_of(image: images.Image) -> str:
    return image.reference.rpartition("/")[2].partition(":")[0]


def all_images() -> list[images.Image]:
    return [image_of(name) for name in NAMES]


def image_of(name: str) -> images.Image:
    process = next((process for process in PROCESSES if process.name == name), None)
    if process is not None:
        return _image_of_process(process)
    reference, parts = reference_of(name), _parts(name)
    if name == "etcd":
        parts.append(str(build.directory_of("etcd")))
    return images.Image(reference, images.digest_of(parts), lambda archive: _build(name, reference, archive))


def _parts(name: str) -> list[str | bytes | pathlib.Path]:
    return [layout.REPOSITORY / "images" / name, _base_digest(), pathlib.Path(__file__), pathlib.Path(bill.__file__)]


def below(process: Process) -> images.Image:
    """Return the image of a process without its source: the stage ``below`` of its Containerfile."""
    reference = f"localhost/kubevirt-build/{process.name}-below:dev"
    parts = [*_parts(process.name), _INSTALL_PACKAGES, repr(process.extra)]
    return images.Image(reference, images.digest_of(parts), lambda archive: _build(process.name, reference, archive, "--target", "below"))


def _earlier(process: Process) -> images.Image:
    """Return the image with an earlier source, at first none."""
    reference, lower = f"localhost/kubevirt-build/{process.name}-source:dev", below(process)
    digest = images.digest_of([lower.digest, *_CODE])  # other code may compile otherwise
    return images.Image(reference, digest, lambda archive: oci.write_over(archive, reference, lower.archive, {}), lower)


def _image_of_process(process: Process) -> images.Image:
    reference, earlier = reference_of(process.name), _earlier(process)
    lower = earlier.chain[0]

    def make(archive: pathlib.Path) -> None:
        with tempfile.TemporaryDirectory(prefix=f"image-{process.name}-", dir=layout.cache()) as scratch:
            _write_source(process, pathlib.Path(scratch))
            source_layer.write(archive, reference, earlier, pathlib.Path(scratch), base_archive() / "base.tar")
        shutil.copyfile(bill.path_of(lower.archive), bill.path_of(archive))  # the source adds no component with a version

    sources = (layout.REPOSITORY / source for source in process.sources)
    return images.Image(reference, images.digest_of([earlier.digest, repr(process), *sources]), make, earlier)


def _build(name: str, reference: str, archive: pathlib.Path, *options: str) -> None:
    with tempfile.TemporaryDirectory(prefix=f"image-{name}-", dir=layout.cache()) as scratch:
        context = pathlib.Path(scratch)
        write_context(name, context)
        _ensure_base()
        apt = _apt_cache(name)
        _buildah(
            "build", "--layers=false", "--quiet", "--tag", reference, "--build-arg", f"BASE={_BASE}", "--build-arg", "LOCKED=no",
            "--file", f"{context}/Containerfile", *options,
            "--volume", f"{apt}/lists:/var/lib/apt/lists", "--volume", f"{apt}/archives:/var/cache/apt/archives", str(context),
        )  # fmt: skip
        _write_bill(name, reference, bill.path_of(archive))
        new = archive.with_name(archive.name + ".new")
        new.unlink(missing_ok=True)
        _buildah("push", "--quiet", "--compression-format", "zstd", "--compression-level", "1", reference, f"oci-archive:{new}:{reference}")
        new.replace(archive)
        _buildah("rmi", reference)


def copy_out(image: images.Image, inside: str, target: pathlib.Path) -> None:
    container = _buildah_output("from", f"oci-archive:{image.archive}").strip()
    try:
        root = pathlib.Path(_buildah_output("mount", container).strip())
        shutil.copyfile(root / inside, target)
    finally:
        _buildah("rm", container)


def _write_bill(name: str, reference: str, path: pathlib.Path) -> None:
    container = _buildah_output("from", "--pull=never", reference).strip()
    try:
        root = pathlib.Path(_buildah_output("mount", container).strip())
        bill.write(name, reference.rpartition(":")[2], root, path)
    finally:
        _buildah("rm", container)
    lock = layout.REPOSITORY / "images" / name / "packages.lock"
    differing = set(bill.debian_packages(path)) ^ set(lock.read_text().split()) if lock.exists() else set()
    if differing:
        newer = ", ".join(sorted(differing)[:6])
        progress.say(f"image {name}: {len(differing)} packages are not those of packages.lock ({newer} …); `make pins` takes them over")


def write_context(name: str, context: pathlib.Path) -> None:
    shutil.copytree(layout.REPOSITORY / "images" / name, context, dirs_exist_ok=True)
    process = next((process for process in PROCESSES if process.name == name), None)
    if process is not None:
        shutil.copy2(_INSTALL_PACKAGES, context / _INSTALL_PACKAGES.name)
        if not (context / "packages.lock").exists():
            (context / "packages.lock").touch()  # for a new image: `make pins` writes it
        _write_source(process, context / "source")
        if process.extra is not None:
            shutil.copytree(wheels(process), context / "dependencies")
    if name == "etcd":
        binaries = context / "rootfs" / "usr" / "local" / "bin"
        binaries.mkdir(parents=True)
        shutil.copy2(build.program("etcd"), binaries / "etcd")
        owner = progress.output_of(["dpkg-query", "--showformat=${Package}=${Version}\\n", "--show", "busybox-static"])
        listed = context / "rootfs" / bill.PACKAGES_LIST
        listed.parent.mkdir(parents=True)
        listed.write_text(owner)
        (context / "rootfs" / "bin").mkdir()
        (context / "rootfs" / "tmp").mkdir()
        (context / "rootfs" / "tmp").chmod(0o1777)
        shutil.copy2("/bin/busybox", context / "rootfs" / "bin" / "busybox")
        for command in (
            "sh",
            "ls",
            "cat",
            "date",
            "mkdir",
            "mv",
            "rm",
            "cp",
            "sleep",
            "test",
            "chmod",
            "sync",
            "df",
            "du",
            "gzip",
            "sha256sum",
            "head",
            "find",
            "echo",
        ):
            (context / "rootfs" / "bin" / command).symlink_to("busybox")


def _write_source(process: Process, target: pathlib.Path) -> None:
    packages = target / PACKAGES_PATH
    for source in process.sources:
        origin = layout.REPOSITORY / source
        if origin.is_dir():
            shutil.copytree(origin, packages / source, ignore=shutil.ignore_patterns("__pycache__", *_NOT_IN_IMAGES))
        else:
            (packages / source).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(origin, packages / source)
    command = target / "usr" / "local" / "bin" / process.name
    command.parent.mkdir(parents=True)
    # -I: neither a PYTHON* variable nor the current directory affects imports.
    command.write_text(f"#!/usr/bin/python3 -Iu\nimport sys\n\nfrom {process.module} import main\n\nsys.exit(main())\n")
    command.chmod(0o755)


def requirements(extra: str) -> list[str]:
    with (layout.REPOSITORY / "pyproject.toml").open("rb") as file:
        return [str(each) for each in tomllib.load(file)["project"]["optional-dependencies"][extra]]


def pins_path(process: Process) -> pathlib.Path:
    return layout.REPOSITORY / "images" / process.name / "requirements.txt"


def wheels_path(process: Process) -> pathlib.Path:
    return layout.cache() / f"wheels-{process.extra}-{images.digest_of([pins_path(process), PYTHON])}"


def wheels_title(process: Process) -> str:
    return f"Fetch Python dependencies of {process.name}"


def wheels(process: Process) -> pathlib.Path:
    def install(directory: pathlib.Path) -> None:
        # The oldest C library that all of them support; the image's is newer.
        options = ("--python-version", PYTHON, "--python-platform", "x86_64-manylinux_2_28", "--only-binary", ":all:")
        installing.install(directory, pins_path(process), *options)
        shutil.rmtree(directory / "bin", ignore_errors=True)
        for older in layout.cache().glob(f"wheels-{process.extra}-{'[0-9a-f]' * 12}"):
            shutil.rmtree(older)

    return caching.once(wheels_path(process), wheels_title(process), install)


def _base_digest() -> str:
    return images.digest_of([RELEASE, _BASE_PACKAGES, "2"])


def base_archive_path() -> pathlib.Path:
    return layout.cache() / f"debian-13-{_base_digest()}"


def base_archive() -> pathlib.Path:
    def bootstrap(directory: pathlib.Path) -> None:
        excluded = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale", "i18n", "info")]
        options = ["--variant=minbase", f"--include={_BASE_PACKAGES}", *excluded, '--aptopt=Acquire::Languages "none"']
        progress.run(["mmdebstrap", *options, RELEASE, directory / "base.tar", mirror()])
        (directory / "Containerfile").write_text("FROM scratch\nADD base.tar /\n")

    return caching.once(base_archive_path(), BASE_TITLE, bootstrap)


def mirror() -> str:
    """Return this machine's Debian mirror: the first Debian URI, not of security updates, in apt's sources. StepFailed without one."""
    candidates = [pathlib.Path("/etc/apt/sources.list"), *sorted(pathlib.Path("/etc/apt/sources.list.d").glob("*"))]
    text = "\n".join(path.read_text() for path in candidates if path.is_file())
    found = [
        uri
        for uri in re.findall(r"^(?:URIs:|deb(?: \[[^\]]*\])?)\s+(\S+)", text, re.MULTILINE)
        if "/debian" in uri and "security" not in uri
    ]
    if not found:
        raise progress.StepFailed("no Debian mirror stands in /etc/apt/sources.list or /etc/apt/sources.list.d; the images' base needs one")
    return str(found[0])


def _ensure_base() -> None:
    label = _base_digest()
    directory = base_archive()
    with (layout.cache() / ".base.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _buildah_output("images", "--filter", f"label=base={label}", "--quiet").strip():
            _buildah("build", "--quiet", "--label", f"base={label}", "--tag", _BASE, "--file", f"{directory}/Containerfile", str(directory))


def _apt_cache(name: str) -> pathlib.Path:
    """Return a directory for apt's lists and packages between builds of one image; concurrent apt processes cannot share one."""
    directory = layout.cache() / "apt" / name
    for name in ("lists/partial", "archives/partial"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    return directory


def _storage() -> list[str]:
    return ["--root", str(layout.cache() / "buildah"), "--runroot", str(layout.cache() / "buildah-run")]


def _environment() -> dict[str, str]:
    return {"BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": _driver()}


def _driver() -> str:
    chosen = layout.cache() / "buildah-driver"
    if not chosen.exists():
        with tempfile.TemporaryDirectory(dir=layout.cache()) as scratch:
            pathlib.Path(scratch, "Containerfile").write_text("FROM scratch\nCOPY Containerfile /\n")
            command = ["buildah", "--root", f"{scratch}/root", "--runroot", f"{scratch}/run", "build", "--quiet", scratch]
            environment = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "overlay"}
            works = subprocess.run(command, check=False, capture_output=True, env=environment).returncode == 0
            subprocess.run(["umount", f"{scratch}/root/overlay"], check=False, capture_output=True)
            written = pathlib.Path(scratch, "driver")
            written.write_text("overlay" if works else "vfs")
            written.replace(chosen)
    return chosen.read_text()


def _buildah(*arguments: str) -> None:
    progress.run(["buildah", *_storage(), *arguments], environment=_environment())


def _buildah_output(*arguments: str) -> str:
    return progress.output_of(["buildah", *_storage(), *arguments], environment=_environment())
