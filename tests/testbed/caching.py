"""Cache directories: complete or absent, and made once for concurrent callers."""

import fcntl
import pathlib
import shutil
import tempfile
from collections.abc import Callable

from tests.testbed import progress


def once(wanted: pathlib.Path, title: str, make: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """Return the directory ``wanted``; if absent, let ``make`` fill a temporary one and rename it. Other callers wait."""
    if wanted.exists():
        return wanted
    wanted.parent.mkdir(parents=True, exist_ok=True)
    # The lock keeps the clean-up below from a running build.
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
