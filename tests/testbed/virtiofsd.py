"""Debian 13's virtiofsd, as virt-launcher's image has it, for tests on a machine whose own one needs privileges."""

import pathlib
import shutil

from tests.testbed import caching, layout, progress, project_images

TITLE = "Fetch Debian 13's virtiofsd"
NAME = "virtiofsd"
_PLACE = "/usr/libexec"
_PACKAGES = ("virtiofsd", "libc6", "libgcc-s1", "libseccomp2", "libcap-ng0")
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_SCRIPT = f"""#!/bin/sh
exec {_PLACE}/root/{_LIBRARIES}/ld-linux-x86-64.so.2 --library-path {_PLACE}/root/{_LIBRARIES} {_PLACE}/root/usr/libexec/virtiofsd "$@"
"""


def directory() -> pathlib.Path:
    """Return a directory to be mounted at ``/usr/libexec``, in which ``virtiofsd`` is.

    Raises:
        progress.StepFailed: it could not be fetched.
    """
    return caching.once(layout.cache() / "virtiofsd-13", TITLE, _fetch)


def _fetch(target: pathlib.Path) -> None:
    work = target / "work"
    for name in ("lists/partial", "archives/partial"):
        (work / name).mkdir(parents=True)
    source = work / "debian.list"
    source.write_text(
        f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {project_images.mirror()} {project_images.RELEASE} main\n"
    )
    places = {"Dir::Etc::SourceList": source, "Dir::Etc::SourceParts": "/dev/null", "Dir::State::Lists": work / "lists"}
    places |= {"Dir::Cache": work, "Acquire::Languages": "none", "APT::Sandbox::User": "root"}
    apt = ["apt-get", "--quiet", *(f"--option={name}={value}" for name, value in places.items())]
    progress.run([*apt, "update"])
    progress.run([*apt, "download", *_PACKAGES], directory=work)
    for package in sorted(work.glob("*.deb")):
        progress.run(["dpkg-deb", "--extract", package, target / "root"])
    shutil.rmtree(work)
    (target / NAME).write_text(_SCRIPT)
    progress.run(["chmod", "--recursive", "a+rX", target])
    (target / NAME).chmod(0o755)
