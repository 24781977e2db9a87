"""Packages that the machine needs: Debian's, and a Go toolchain."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence

from tests.testbed import progress

# A file or program shows that the package is installed, so a complete machine needs no apt.
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
}
_TESTS_NEED = {
    "libvirt-daemon-system": "libvirtd",
    "qemu-system-x86": "qemu-system-x86_64",
    "qemu-utils": "qemu-img",
    "qemu-block-extra": "/usr/lib/x86_64-linux-gnu/qemu/block-iscsi.so",
    "tgt": "tgtd",
    "nfs-ganesha-vfs": "/usr/lib/x86_64-linux-gnu/ganesha/libfsalvfs.so",
    "rpcbind": "rpcbind",
    "ceph-mon": "ceph-mon",
    "ceph-osd": "ceph-osd",
    "ceph-common": "rbd",
    "socat": "socat",
    "kmod": "depmod",
    "cpio": "cpio",
    "mtools": "mcopy",
    "ovmf": "/usr/share/OVMF/OVMF_CODE_4M.fd",
    "swtpm": "swtpm",
    "swtpm-tools": "swtpm_setup",
    "xorriso": "xorriso",
    "dhcpcd-base": "dhcpcd",
    "prometheus": "promtool",
}
_LOGIN_NEEDS = {"openssh-client": "ssh-keygen"}
_JAVA_NEEDS = {"default-jdk-headless": "javac", "maven": "mvn"}
# libvirt's Python binding exists only as source, compiled with the machine's libvirt.
_PYTHON_NEEDS = {
    "gcc": "gcc",
    "libc6-dev": "/usr/include/stdio.h",
    "pkg-config": "pkg-config",
    "libvirt-dev": "/usr/include/libvirt/libvirt.h",
    "python3-dev": f"{sysconfig.get_path('include')}/Python.h",
}
_APT_INSTALL = ["apt-get", "install", "--quiet", "--yes", "--no-install-recommends", "--option=DPkg::Lock::Timeout=300"]
_GO = (1, 26)


def _is_there(sign: str) -> bool:
    return (
        pathlib.Path(sign).exists()
        if sign.startswith("/")
        else shutil.which(sign, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is not None
    )


def _missing(needed: Mapping[str, str]) -> list[str]:
    return [package for package, sign in needed.items() if not _is_there(sign)]


def missing(*, for_tests: bool = False) -> list[str]:
    return _missing({**_NEEDED, **({**_TESTS_NEED, **_LOGIN_NEEDS} if for_tests else {})})


def missing_for_python() -> list[str]:
    return _missing_for_venv() + _missing(_PYTHON_NEEDS)


def _missing_for_venv() -> list[str]:
    return [] if importlib.util.find_spec("ensurepip") else ["python3-venv"]


def install(*, for_tests: bool = False) -> None:
    if os.geteuid() != 0:
        raise progress.StepFailed("this needs root: it installs packages and makes namespaces, mounts and cgroups")
    _check_go()
    pip = [] if importlib.util.find_spec("pip") else _missing_for_venv()  # this pip fetches uv
    _install([*missing(for_tests=for_tests), *pip])


def install_for_python() -> None:
    _install_or_say(missing_for_python(), "the virtual environment")


def install_for_login() -> None:
    _install_or_say(_missing(_LOGIN_NEEDS), "a login to the guest")


def install_for_java() -> None:
    _install_or_say(_missing(_JAVA_NEEDS), "a test with a Java client")


def _install_or_say(wanted: list[str], who: str) -> None:
    if wanted and (os.geteuid() != 0 or shutil.which("apt-get") is None):
        raise progress.StepFailed(f"{who} needs {' '.join(wanted)} (names of Debian packages); install them and try again")
    _install(wanted)


def title(wanted: Sequence[str]) -> str:
    return f"Install {' '.join(wanted)}"


def _install(wanted: list[str]) -> None:
    if wanted:
        with progress.step(title(wanted)):
            quiet = {"DEBIAN_FRONTEND": "noninteractive"}
            progress.run(["apt-get", "update", "--quiet"], environment=quiet)
            progress.run([*_APT_INSTALL, *wanted], environment=quiet)


def _check_go() -> None:
    if shutil.which("go") is None:
        raise progress.StepFailed(f"Go {_GO[0]}.{_GO[1]} or later is needed to build Kubernetes, and no `go` is on the PATH")
    version = subprocess.run(["go", "env", "GOVERSION"], check=False, capture_output=True, text=True).stdout.strip()
    found = tuple(int(part) for part in version.removeprefix("go").split(".")[:2] if part.isdigit())
    if found < _GO:
        raise progress.StepFailed(f"Go {_GO[0]}.{_GO[1]} or later is needed to build Kubernetes; `go env GOVERSION` says {version}")
