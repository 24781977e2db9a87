"""``kubectl virt ssh`` and ``scp``: the system's programs, with ``kubectl virt port-forward --stdio`` as their connection.

ssh stores the guest's key under the machine's uid: another machine of the same name is another host, and a machine that
moves the same one.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.kubectl import calling, verbs
from apiserver.kubectl.access import Access, Selection
from apiserver.kubectl.messages import Failure


@dataclass(frozen=True, slots=True)
class Login:
    """How to log in to a machine's guest by ssh."""

    name: str
    user: str = ""
    """Empty: ssh's configuration decides."""
    port: int = 22
    identity: str = ""
    """Empty: as above."""
    options: tuple[str, ...] = ()


def common(login: Login, selection: Selection, vm: Object) -> tuple[str, ...]:
    """Return the arguments that ssh and scp share: identity, proxy command, host key's alias, options."""
    metadata = vm["metadata"]
    place = (f"--namespace={metadata['namespace']}", *calling.flags(selection))
    forward = (*plugin(sys.argv[0]), "port-forward", "--stdio", *place, login.name, str(login.port))
    options = (*login.options, f"ProxyCommand={shlex.join(forward).replace('%', '%%')}", f"HostKeyAlias=vm-{metadata['uid']}")
    return (*(("-i", login.identity) if login.identity else ()), *(part for each in options for part in ("-o", each)))


def plugin(started: str) -> tuple[str, ...]:
    """Return the command that runs this plugin from any directory: the ``started`` program, or its module."""
    program = Path(started).resolve()
    return (sys.executable, "-P", "-m", "apiserver.kubectl") if program.name == "__main__.py" else (str(program),)


def host(login: Login, vm: Object) -> str:
    """Return ssh's destination, ``[USER@]NAME.NAMESPACE.vm``, which a ``Host`` line of its configuration may match."""
    name = f"{login.name}.{vm['metadata']['namespace']}.vm"
    return f"{login.user}@{name}" if login.user else name


def ssh(login: Login, selection: Selection, vm: Object, command: Sequence[str]) -> tuple[str, ...]:
    """Return ssh's command line; ``command`` is for the guest's shell."""
    return ("ssh", *common(login, selection, vm), "--", host(login, vm), *command)


def scp(login: Login, selection: Selection, vm: Object, paths: Sequence[str], *, recursive: bool) -> tuple[str, ...]:
    """Return scp's command line; the guest's path begins with ``:``."""
    named = (f"{host(login, vm)}{each}" if each.startswith(":") else each for each in paths)
    return ("scp", *(("-r",) if recursive else ()), *common(login, selection, vm), "--", *named)


async def machine(access: Access, name: str) -> Object:
    """Return the machine to log in to. Raises Failure."""
    doing = f"log in to virtual machine {access.namespace}/{name}"
    return await verbs.request(access, "GET", VIRTUAL_MACHINES.path(access.namespace, name), doing)


def replace_process(command: Sequence[str]) -> int:
    """Run the program in place of this process, so the call never returns; raises Failure if it is not on PATH."""
    found = shutil.which(command[0])
    if found is None:
        raise Failure(f"error: {command[0]} is not on PATH: install OpenSSH's client")
    os.execv(found, list(command))  # noqa: S606  no shell, as intended
