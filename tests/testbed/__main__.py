"""``python3 -m tests.testbed COMMAND``."""

import argparse
import pathlib
import shutil
import sys
from collections.abc import Callable

from tests.testbed import (
    bill,
    cluster,
    demo,
    images,
    kubectl,
    layout,
    nodes,
    packages,
    processes,
    progress,
    project_images,
    release,
    virtual_environment,
)


def _up(_: list[str]) -> int:
    cluster.up()
    progress.say(f"\nexport KUBECONFIG={layout.kubeconfig()}")
    return 0


def _down(_: list[str]) -> int:
    cluster.down()
    return 0


def _status(_: list[str]) -> int:
    return 0 if cluster.status() else 1


def _load_images(names: list[str]) -> int:
    cluster.load_images(names or project_images.NAMES)
    with kubectl.own_cluster():
        return _install([]) if release.outdated() else 0


def _kill_node(names: list[str]) -> int:
    known = {each.name: each for each in layout.NODES}
    if len(names) != 1 or names[0] not in known:
        raise progress.StepFailed(f"name one of {', '.join(known)}")
    nodes.kill(known[names[0]])
    return 0


def _demo(_: list[str]) -> int:
    demo.up()
    return 0


def _prepare(_: list[str]) -> int:
    demo.prepare()
    return 0


def _undo(_: list[str]) -> int:
    demo.down()
    return 0


def _install(_: list[str]) -> int:
    with progress.step("Install charts/kubevirt"):
        release.install_current()
    return 0


def _packages(_: list[str]) -> int:
    packages.install(for_tests=True)
    return 0


def _setup(_: list[str]) -> int:
    virtual_environment.make()
    return 0


def _env(_: list[str]) -> int:
    print(demo.shell_variables())
    return 0


def _images(names: list[str]) -> int:
    for image in images.ensure([project_images.image_of(name) for name in names or project_images.NAMES]):
        print(image.archive)
    return 0


def _image_context(names: list[str]) -> int:
    if len(names) != 2:
        raise progress.StepFailed(f"usage: image-context {{{','.join((*project_images.NAMES, *project_images.ON_REQUEST))}}} DIRECTORY")
    project_images.write_context(names[0], pathlib.Path(names[1]))
    return 0


def _bills(names: list[str]) -> int:
    if len(names) != 1:
        raise progress.StepFailed("usage: bills DIRECTORY")
    directory = pathlib.Path(names[0])
    directory.mkdir(parents=True, exist_ok=True)
    for image in images.ensure(project_images.all_images()):
        print(shutil.copyfile(bill.path_of(image.archive), directory / f"{project_images.name_of(image)}{bill.SUFFIX}"))
    return 0


def _kubeconfig(_: list[str]) -> int:
    print(layout.kubeconfig())
    return 0


def _logs(_: list[str]) -> int:
    for name in processes.names():
        print(processes.log_of(name))
    return 0


COMMANDS: dict[str, tuple[Callable[[list[str]], int], str, str]] = {
    "up": (_up, "", "bring the cluster up; what runs stays"),
    "down": (_down, "", "remove it, and everything that it made"),
    "status": (_status, "", "say what runs; fails unless all of it does"),
    "kill-node": (_kill_node, "NODE", "end all processes of a node at once, as a power cut does; `up` starts it again"),
    "demo": (_demo, "", "a cluster, the chart, a virtual machine, and what to type next"),
    "prepare": (_prepare, "", "build all programs and images that demo needs, and start nothing"),
    "demo-down": (_undo, "", "take away what demo made"),
    "install": (_install, "", "install or upgrade the chart in the cluster"),
    "env": (_env, "", "print shell commands that put the cluster's kubectl and the plugin within reach"),
    "packages": (_packages, "", "install the Debian packages that demo and tests need"),
    "setup": (_setup, "", "make the virtual environment, and install what it needs"),
    "load-images": (_load_images, "IMAGE", "build the project's images (all, or those named) and give them to the nodes"),
    "images": (_images, "IMAGE", "build them only, and print the paths of the archives"),
    "image-context": (_image_context, "IMAGE DIRECTORY", "write what `docker build` or `podman build` needs into a directory"),
    "bills": (_bills, "DIRECTORY", "build the images and copy their bills of materials into a directory"),
    "kubeconfig": (_kubeconfig, "", "print the path of the administrator's kubeconfig"),
    "logs": (_logs, "", "print the paths of the logs"),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m tests.testbed", description="A real two-node Kubernetes on this machine.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (_, operands, text) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        if operands:
            command.add_argument("names", nargs="*", metavar=operands)
    chosen = parser.parse_args()
    try:
        return COMMANDS[chosen.command][0](getattr(chosen, "names", []))
    except progress.StepFailed as error:
        progress.say(f"\n{error}")
        return 1
    except KeyboardInterrupt:
        progress.say("\ninterrupted; the same command goes on from here")
        return 130


if __name__ == "__main__":
    sys.exit(main())
