"""Process 1 of a node: makes the node's own directories, says that it is ready, and reaps orphans.

When it ends, the kernel ends every process of the node: ``down`` leaves none, and a test can make a node fail.

Usage: ``python3 nodeinit.py DIRECTORY``
"""

import os
import pathlib
import signal
import subprocess
import sys


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def prepare(directory: pathlib.Path) -> None:
    """Give this mount namespace, a node's, a /proc of its processes only, and its own /run, /var/lib and /var/log.

    Two nodes' CNI, container and plugin state must not meet.
    """
    _mount("-t", "proc", "proc", "/proc")
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for own in ("lib", "log"):
        (directory / f"var-{own}").mkdir(exist_ok=True)
        _mount("--bind", str(directory / f"var-{own}"), f"/var/{own}")
    kubelet = pathlib.Path("/var/lib/kubelet")
    kubelet.mkdir(exist_ok=True)
    # Shared: the others see mounts of a pod with Bidirectional propagation.
    _mount("--bind", str(kubelet), str(kubelet))
    _mount("--make-rshared", str(kubelet))
    _mount("--make-rshared", "/run")


def started() -> str:
    """Return when this process started, in clock ticks since the machine's start.

    This identifies it, unlike the number of its PID namespace, which the kernel uses again.
    """
    return pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]


def reap_until_told_to_end() -> None:
    while signal.sigwait({signal.SIGCHLD, signal.SIGTERM}) != signal.SIGTERM:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


def main() -> None:
    directory = pathlib.Path(sys.argv[1])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    prepare(directory)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    said = directory / "ready.new"
    said.write_text(started())
    said.replace(directory / "ready")
    reap_until_told_to_end()


if __name__ == "__main__":
    main()
