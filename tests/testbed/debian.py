"""Debian 13's programs, as in virt-launcher's image, for machines with another version."""

import pathlib
import shutil
from collections.abc import Mapping, Sequence

from tests.testbed import progress, project_images

LIBRARIES = "usr/lib/x86_64-linux-gnu"


def unpack(target: pathlib.Path, packages: Sequence[str], scripts: Mapping[str, str]) -> None:
    """Unpack these packages, without their dependencies, to ``root`` in a directory; write ``scripts`` (texts by file name) next to it."""
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
    progress.run([*apt, "download", *packages], directory=work)
    for package in sorted(work.glob("*.deb")):
        progress.run(["dpkg-deb", "--extract", package, target / "root"])
    shutil.rmtree(work)
    for name, text in scripts.items():
        (target / name).write_text(text)
    progress.run(["chmod", "--recursive", "a+rX", target])
    for name in scripts:
        (target / name).chmod(0o755)
