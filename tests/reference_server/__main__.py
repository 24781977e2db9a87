"""``python -m tests.reference_server up ours|reference|both``: print addresses and kubeconfigs as JSON lines, and run until interrupted."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.reference_server import environment, servers
from tests.reference_server.certificates import ADMIN, USER
from tests.reference_server.programs import ProgramFailed
from tests.reference_server.servers import Server, Variant
from tests.testbed.progress import StepFailed

WHICH: Final[dict[str, tuple[Variant, ...]]] = {
    "ours": (servers.OURS_FLUNDERS,),
    "reference": (servers.REFERENCE_DEFAULT,),
    "both": (servers.REFERENCE_DEFAULT, servers.OURS_FLUNDERS),
    "vms": (servers.OURS_MACHINES,),
}


def up(which: str, directory: Path, *, cluster: bool) -> None:
    with ExitStack() as stack:
        here = stack.enter_context(environment.environment(directory, cluster=cluster))
        if cluster:
            print(json.dumps({"name": "kubernetes", "url": here.kubernetes_url, "kubeconfig": str(here.kubeconfig())}), flush=True)
        for variant in WHICH[which]:
            server = Server(variant, here)
            stack.callback(server.end)
            seconds = server.start()
            told = {
                "name": variant.name,
                "pid": server.pid,
                "url": server.url,
                "kubeconfig": str(server.kubeconfig(ADMIN)),
                "kubeconfig_of_user": str(server.kubeconfig(USER)),
                "log": str(server.program.log) if server.program else "",
                "ready_after": round(seconds, 2),
            }
            print(json.dumps(told), flush=True)
        signal.pause()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.reference_server", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    upwards = commands.add_parser("up", help="run until interrupted")
    upwards.add_argument("which", choices=sorted(WHICH))
    upwards.add_argument("--directory", type=Path, help="where certificates, data and logs go; default: a new one that is removed")
    upwards.add_argument(
        "--no-cluster", action="store_true", help="without kube-apiserver: only system:masters may do anything at the reference"
    )
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="reference-") as temporary:
            up(given.which, given.directory or Path(temporary), cluster=not given.no_cluster)
    except KeyboardInterrupt:
        return
    except (ProgramFailed, StepFailed) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
