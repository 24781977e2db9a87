"""``python -m launcher``: see ``launcher.main``."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from apiserver.apis.virt.places import layout

HELP: Final = """usage: virt-launcher

First process of a virtual machine's pod: runs libvirtd and one guest, and exits when the guest ends. It has no flags: virt-handler tells it
what to run, through a socket in the pod. Do not run it outside of a pod."""
TERMINATION_LOG: Final = "/dev/termination-log"
NOT_RUN: Final = "destroyed: the pod was deleted before its guest ran"
"""As in ``launcher.main.decisions.life.termination_message``, which is not loaded yet."""

ABSENT: Final = ("ssl", "_hashlib", "bz2", "lzma")
"""Modules that asyncio, hashlib and shutil import if possible, and work without: 3.8 MiB of each pod."""


def main() -> int:
    """Run virt-launcher, an attachment pod or a deletion of images, by the directories in the pod; return the exit status.

    Any argument only prints help; other ones than ``-h`` and ``--help`` return 2.
    """
    if sys.argv[1:]:  # argparse would cost memory
        asked = sys.argv[1] in {"-h", "--help"}
        print(HELP, file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    if Path(layout.IMAGE_REMOVAL_DIRECTORY).is_dir():
        return _delete_images(Path(layout.IMAGE_REMOVAL_DIRECTORY))
    _heed_sigterm()
    if (
        any(Path(each).is_dir() for each in (layout.ATTACHMENT_DIRECTORY, layout.ATTACHMENT_OVERLAY_DIRECTORY))
        or Path(layout.ATTACHMENT_DEVICE).exists()
    ):
        if Path(layout.ATTACHMENT_IMPORT_DIRECTORY).is_dir():
            return _fill()
        return _hold(Path(layout.RUN_DIRECTORY, layout.ATTACHMENT_SOCKET))
    _prepare()
    import asyncio

    from launcher.main import process

    return asyncio.run(_to_the_end(process.run))


def _prepare() -> None:
    for name in ABSENT:
        sys.modules[name] = None  # type: ignore[assignment]  # the import system's way to say "not there"

    from apiserver import logs

    os.umask(0o077)
    logs.configure("info")


def _fill() -> int:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    _prepare()
    import asyncio

    from launcher.main.filling import Filling

    return asyncio.run(_to_the_end(Filling().run))


def _delete_images(directory: Path) -> int:
    try:
        for each in directory.iterdir():
            each.unlink()
    except OSError as error:
        with contextlib.suppress(OSError):
            Path(TERMINATION_LOG).write_text(str(error))
        return 1
    return 0


def _hold(path: Path) -> int:
    """Listen at the socket ``path`` until SIGTERM, so virt-handler finds this process and takes a mount of this pod."""
    import socket

    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        while True:
            listener.accept()[0].close()


async def _to_the_end(run: Callable[[], Coroutine[Any, Any, int]]) -> NoReturn:
    """Exit with the result of ``run``, or 1 after an ``Exception``, without waiting for threads that hang in libvirt or on disks."""
    code = 1
    try:
        code = await run()
    except Exception:  # log any error of main before the exit
        import logging

        logging.getLogger(__name__).exception("virt-launcher failed")
    os._exit(code)


def _heed_sigterm() -> None:
    """Exit at once on SIGTERM, even a pending one, until the event loop handles it.

    The image's entry point blocks SIGTERM, because without a handler the kernel would drop it in a container's first process. This unblocks
    it.
    """
    signal.signal(signal.SIGTERM, _end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    with contextlib.suppress(OSError):  # elsewhere it does not exist
        log = os.open(TERMINATION_LOG, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        os.write(log, NOT_RUN.encode())
    os.write(sys.stderr.fileno(), f"{NOT_RUN}\n".encode())
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
