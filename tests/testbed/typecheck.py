"""Runs mypy with the cache of the last successful run in any work tree.

It is copied, because two runs must not write to one cache.
"""

import fcntl
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.testbed import layout

MYPY = (str(pathlib.Path(sys.executable).with_name("mypy")),)


def run(tree: pathlib.Path, kept: pathlib.Path, command: Sequence[str] = MYPY) -> int:
    own = tree / ".mypy_cache"
    with _locked(kept):
        if kept.exists() and not own.exists():
            shutil.copytree(kept, own)
    status = subprocess.run(command, cwd=tree, check=False).returncode
    if status == 0 and own.exists():
        with _locked(kept):
            _replace(kept, own)
    return status


def _replace(kept: pathlib.Path, own: pathlib.Path) -> None:
    if _shape(kept) == _shape(own):
        return
    new, old = (kept.with_name(f".{kept.name}.{word}") for word in ("new", "old"))
    for leftover in (new, old):
        shutil.rmtree(leftover, ignore_errors=True)
    shutil.copytree(own, new)
    if kept.exists():
        kept.rename(old)
    new.rename(kept)
    shutil.rmtree(old, ignore_errors=True)


def _shape(cache: pathlib.Path) -> dict[str, tuple[int, int]]:
    files = (path for path in cache.rglob("*") if path.is_file())
    return {str(path.relative_to(cache)): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


@contextmanager
def _locked(kept: pathlib.Path) -> Iterator[None]:
    kept.parent.mkdir(parents=True, exist_ok=True)
    with (kept.parent / f".{kept.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(run(layout.REPOSITORY, layout.cache() / "mypy"))
