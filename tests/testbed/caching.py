"""Directories of the cache: whole or absent, and made once however many ask."""

import fcntl
import pathlib
import shutil
import tempfile
from collections.abc import Callable

from tests.testbed import progress


def once(wanted: pathlib.Path, title: str, make: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """Return the directory ``wanted``; if it is absent, let ``make`` fill a temporary one and rename that.

    Whoever comes second while the first one works waits. A ``make`` that fails or is killed leaves nothing behind but a
    temporary directory, which the next caller removes.
    """
    if wanted.exists():
        return wanted
    wanted.parent.mkdir(parents=True, exist_ok=True)
    # One lock for each tool, whatever its version: the cleaning below must not hit a build at work.
    with (wanted.parent / f".{wanted.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if wanted.exists():
            return wanted
        for leftover in wanted.parent.glob(f".{wanted.name}.tmp*"):
            shutil.rmtree(leftover)
        temporary = pathlib.Path(tempfile.mkdtemp(prefix=f".{wanted.name}.tmp", dir=wanted.parent))
        temporary.chmod(0o755)
        with progress.step(title):
            make(temporary)
        temporary.rename(wanted)
    return wanted
