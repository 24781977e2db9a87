"""What has to be installed on the machine: Debian packages, and a Go toolchain."""

import os
import pathlib
import shutil
import subprocess

from tests.testbed import progress

# A file or program that tells that the package is there, so that nothing is asked of apt on a machine that has it all.
_NEEDED = {
    "runc": "runc",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "nftables": "nft",
    "conntrack": "conntrack",
    "iproute2": "ip",
    "procps": "sysctl",
    "util-linux": "nsenter",
    "openssl": "openssl",
    "mmdebstrap": "mmdebstrap",
    "debian-archive-keyring": "/usr/share/keyrings/debian-archive-keyring.gpg",
    "buildah": "buildah",
    "busybox-static": "/bin/busybox",
    "python3-venv": "/usr/lib/python3/dist-packages",
}
_TESTS_NEED = {
    "libvirt-daemon-system": "libvirtd",
    "qemu-system-x86": "qemu-system-x86_64",
    "qemu-utils": "qemu-img",
    "dnsmasq-base": "dnsmasq",
    "socat": "socat",
}
_GO = (1, 26)


def _is_there(sign: str) -> bool:
    return (
        pathlib.Path(sign).exists()
        if sign.startswith("/")
        else shutil.which(sign, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is not None
    )


def missing(*, for_tests: bool = False) -> list[str]:
    """Return the names of the packages that are not installed."""
    needed = {**_NEEDED, **(_TESTS_NEED if for_tests else {})}
    return [package for package, sign in needed.items() if not _is_there(sign)]


def install(*, for_tests: bool = False) -> None:
    """Install what is missing.

    Raises:
        progress.StepFailed: not root, apt failed, or there is no Go of the needed version.
    """
    if os.geteuid() != 0:
        raise progress.StepFailed("this needs root: it installs packages and makes namespaces, mounts and cgroups")
    _check_go()
    wanted = missing(for_tests=for_tests)
    if wanted:
        with progress.step(f"Install {' '.join(wanted)}"):
            quiet = {"DEBIAN_FRONTEND": "noninteractive"}
            progress.run(["apt-get", "update", "--quiet"], environment=quiet)
            progress.run(["apt-get", "install", "--quiet", "--yes", "--no-install-recommends", *wanted], environment=quiet)


def _check_go() -> None:
    """Refuse early: without Go, or with one that is too old, the first build would fail after a long download."""
    if shutil.which("go") is None:
        raise progress.StepFailed(f"Go {_GO[0]}.{_GO[1]} or later is needed to build Kubernetes, and no `go` is on the PATH")
    version = subprocess.run(["go", "env", "GOVERSION"], check=False, capture_output=True, text=True).stdout.strip()
    found = tuple(int(part) for part in version.removeprefix("go").split(".")[:2] if part.isdigit())
    if found < _GO:
        raise progress.StepFailed(f"Go {_GO[0]}.{_GO[1]} or later is needed to build Kubernetes; `go env GOVERSION` says {version}")
