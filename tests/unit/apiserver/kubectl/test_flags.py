from __future__ import annotations

import pytest

from apiserver.kubectl import flags
from apiserver.kubectl.access import version


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("stop a --now", "error: unrecognized arguments: --now\nSee 'kubectl virt stop --help' for usage."),
        ("stop a b", "error: unrecognized arguments: b\nSee 'kubectl virt stop --help' for usage."),
        ("stop vm a", "error: vm a: write vm/a\nSee 'kubectl virt stop --help' for usage."),
        ("console VirtualMachines a", "error: VirtualMachines a: write VirtualMachines/a\nSee 'kubectl virt console --help' for usage."),
        ("migrate a --timeout 5m", "error: --timeout is how long --wait waits: write --wait, too\nSee 'kubectl virt migrate --help'"),
        ("cancel-migration a --timeout 0s", "write --wait, too\nSee 'kubectl virt cancel-migration --help'"),
        (
            "cancel-migration VM/a --migration",
            "error: VM/a is a virtual machine, and --migration says that NAME is a Migration: write one or the other\n"
            "See 'kubectl virt cancel-migration --help'",
        ),
        ("stop pod/a", "error: argument NAME: 'pod/a' names no virtual machine: write NAME or vm/NAME\nSee 'kubectl virt stop --help'"),
    ],
)
def test_usage_error_names_the_commands_help(arguments: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It does not name the help of the whole program."""
    with pytest.raises(SystemExit) as ended:
        flags.parse(arguments.split())
    assert ended.value.code == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", ["move-etcd", "outdated", "stop", "console", "guestinfo", "migrate"])
def test_help_begins_with_a_sentence(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        flags.parse([command, "--help"])
    described = capsys.readouterr().out.split("\n\n")[1]
    assert described[0].isupper(), described


def test_flags_of_the_cluster_stand_before_and_after_the_command() -> None:
    parsed = flags.parse(["-n", "one", "stop", "vm/a", "--context", "two"])
    assert (parsed.command, parsed.name) == ("stop", "a")
    assert (parsed.selection.namespace, parsed.selection.context) == ("one", "two")


def test_a_migration_is_waited_for_if_asked() -> None:
    assert not flags.parse(["migrate", "a"]).wait
    parsed = flags.parse(["migrate", "vm/a", "--wait", "--timeout", "90s"])
    assert (parsed.name, parsed.wait, parsed.timeout) == ("a", True, 90.0)
    assert flags.parse(["migrate", "a", "--wait"]).timeout == 600.0
    assert flags.parse(["migrate", "a"]).priority is None
    assert flags.parse(["migrate", "a", "--priority", "-5"]).priority == -5


@pytest.mark.parametrize(
    ("arguments", "name", "by_migration"),
    [
        ("a", "a", False),
        ("vm/a", "a", False),
        ("a --migration", "a", True),
        ("migration.kubevirt.io/a-x7k2p", "a-x7k2p", True),
        ("Migration/a-x7k2p --migration", "a-x7k2p", True),
        ("vmmig/a-x7k2p --wait", "a-x7k2p", True),
    ],
)
def test_cancellation_accepts_machine_or_migration_name(arguments: str, name: str, by_migration: bool) -> None:
    parsed = flags.parse(["cancel-migration", *arguments.split()])
    assert (parsed.command, parsed.name, parsed.migration) == ("cancel-migration", name, by_migration)


def test_no_other_command_takes_the_name_of_a_migration(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["migrate", "vmmig/a"], ["cancel-migration", "pod/a"], ["stop", "a", "--wait"]):
        with pytest.raises(SystemExit) as ended:
            flags.parse(arguments)
        assert ended.value.code == 1
    assert "names no virtual machine" in capsys.readouterr().err


def test_its_release_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        flags.parse(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"kubectl-virt {version()}\n"
