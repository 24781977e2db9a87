from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from apiserver.kubectl import flags, ssh
from apiserver.kubectl.access import Selection
from apiserver.kubectl.ssh import Login

VM: dict[str, Any] = {"metadata": {"name": "web", "namespace": "team", "uid": "u-1"}}
SELECTION = Selection(kubeconfig="/my files/50%", context="a", namespace="given", impersonate_user="bob", impersonate_groups=("x", "y"))


def option(command: tuple[str, ...], name: str) -> str:
    return next(each.removeprefix(f"{name}=") for each in command if each.startswith(f"{name}="))


def test_ssh_understands_its_command_line(tmp_path: Path) -> None:
    (key := tmp_path / "key").touch()
    command = ssh.ssh(Login("web", "root", 2222, str(key)), SELECTION, VM, ["ls", "-l"])
    done = subprocess.run([command[0], "-G", *command[1:]], capture_output=True, text=True, check=True)
    assert {"user root", "hostname web.team.vm", "hostkeyalias vm-u-1", f"identityfile {key}"} <= set(done.stdout.splitlines())
    assert command[-3:] == ("root@web.team.vm", "ls", "-l")


def test_connection_runs_the_program_that_was_started(tmp_path: Path) -> None:
    """It may have its own search path for modules, as krew's program, and any working directory."""
    (linked := tmp_path / "kubectl-virt").symlink_to(program := tmp_path / "store/kubectl virt")
    assert ssh.plugin(str(linked)) == (str(program),)
    assert ssh.plugin("/somewhere/apiserver/kubectl/__main__.py") == (sys.executable, "-P", "-m", "apiserver.kubectl")


def test_connection_uses_the_same_cluster_and_user() -> None:
    proxy = option(ssh.ssh(Login("web"), SELECTION, VM, ()), "ProxyCommand")
    assert "50%%" in proxy
    command = shlex.split(proxy.replace("%%", "%"))
    own = ssh.plugin(sys.argv[0])
    assert tuple(command[: len(own)]) == own
    parsed = flags.parse(command[len(own) :])
    assert (parsed.command, parsed.stdio, parsed.name, parsed.ports[0].forward.port) == ("port-forward", True, "web", 22)
    assert parsed.selection == Selection(
        kubeconfig="/my files/50%", context="a", namespace="team", impersonate_user="bob", impersonate_groups=("x", "y")
    )


def test_given_options_of_ssh_win() -> None:
    command = ssh.ssh(Login("web", options=("HostKeyAlias=mine",)), Selection(), VM, ())
    assert option(command, "HostKeyAlias") == "mine"


def test_guest_path_of_scp_gets_the_destination() -> None:
    command = ssh.scp(Login("web", "root"), Selection(), VM, [":/etc/fstab", "./b:c"], recursive=True)
    assert command[:2] == ("scp", "-r")
    assert command[-2:] == ("root@web.team.vm:/etc/fstab", "./b:c")


def test_names_do_not_become_options_of_ssh() -> None:
    assert ssh.ssh(Login("web", "-oProxyCommand=x"), Selection(), VM, ("-v",))[-3:] == ("--", "-oProxyCommand=x@web.team.vm", "-v")
