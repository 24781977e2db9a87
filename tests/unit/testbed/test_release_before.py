from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.testbed import images, layout, progress, project_images, release_before


def git(directory: Path, *arguments: str) -> str:
    command = ["git", "-C", str(directory), "-c", "user.name=x", "-c", "user.email=x@example.com", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_old_release_is_checked_out_from_its_commit(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    origin.mkdir()
    git(origin, "init", "-q")
    (origin / "release").write_text("before")
    git(origin, "add", "release")
    git(origin, "commit", "-q", "-m", "before")
    commit = git(origin, "rev-parse", "HEAD")
    (origin / "release").write_text("now")
    (origin / "more").touch()
    release_before.check_out(tmp_path / "old" / "source", origin, commit)
    assert [(each.name, each.read_text()) for each in (tmp_path / "old" / "source").iterdir()] == [("release", "before")]


def test_its_commit_is_an_earlier_one_of_this_history() -> None:
    git(layout.REPOSITORY, "merge-base", "--is-ancestor", release_before.COMMIT, "HEAD")


def test_a_clone_without_its_history_is_told_what_it_lacks(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    with pytest.raises(progress.StepFailed, match="whole history"):
        release_before.check_out(tmp_path / "source", tmp_path)


def test_old_releases_archive_is_distinct_from_todays_image() -> None:
    today = project_images.image_of("virt-launcher").archive
    prefix = today.name.removesuffix(f"{project_images.image_of('virt-launcher').digest}.tar")
    before = release_before.launcher().archive
    assert isinstance(release_before.launcher(), images.Image)
    assert not before.match(f"{prefix}{'[0-9a-f]' * 12}.tar")


TODAY = """FROM base AS below
RUN LOCKED=no sh /usr/local/share/build/install-packages.sh \\
      python3 qemu passt \\
 && rm -rf /usr/share/doc
USER 107:107
ENV A=1
FROM below
USER 0:0
COPY source/ /
USER 107:107
"""


@pytest.mark.parametrize(
    ("packages", "user", "may"),
    [
        ("python3 qemu", "107:107", True),
        ("python3 qemu passt", "107:107", True),
        ("python3 other", "107:107", False),
        ("python3 qemu", "0:0", False),
    ],
)
def test_old_source_is_layered_on_todays_packages_if_complete(packages: str, user: str, *, may: bool) -> None:
    before = f"FROM base\nRUN LOCKED=no sh /build/install-packages.sh {packages} && true\nCOPY source/ /\nUSER {user}\nENV A=1\n"
    assert release_before.may_lie_on(before, TODAY) is may


def test_its_containerfile_asks_for_packages() -> None:
    assert {"python3", "qemu-utils", "libvirt-daemon"} <= release_before._packages(release_before._containerfile_before())
