"""The test cluster's command line: ``python3 -m tests.testbed COMMAND``."""

import argparse
import sys

from tests.testbed import cluster, images, layout, processes, progress


def _up() -> int:
    cluster.up()
    progress.say(f"\nexport KUBECONFIG={layout.kubeconfig()}")
    return 0


def _down() -> int:
    cluster.down()
    return 0


def _status() -> int:
    return 0 if cluster.status() else 1


def _kubeconfig() -> int:
    print(layout.kubeconfig())
    return 0


def _logs() -> int:
    for name in processes.names():
        print(processes.log_of(name))
    return 0


COMMANDS = {
    "up": (_up, "bring the cluster up; what runs stays"),
    "down": (_down, "remove it, and everything that it made"),
    "status": (_status, "say what runs; fails unless all of it does"),
    "kubeconfig": (_kubeconfig, "print the path of the administrator's kubeconfig"),
    "logs": (_logs, "print the paths of the logs"),
}


def main() -> int:
    """Run the command that is named."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.testbed", description="A real two-node Kubernetes on this machine.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (_, text) in COMMANDS.items():
        commands.add_parser(name, help=text, description=text)
    chosen = parser.parse_args().command
    try:
        return COMMANDS[chosen][0]()
    except progress.StepFailed as error:
        progress.say(f"\n{error}")
        return 1
    except KeyboardInterrupt:
        progress.say("\ninterrupted; the same command goes on from here")
        return 130


if __name__ == "__main__":
    sys.exit(main())
