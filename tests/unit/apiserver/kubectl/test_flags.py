"""Mistakes on the command line, and what is said of them."""

from __future__ import annotations

import pytest

from apiserver.kubectl import flags


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("stop a --force", "error: unrecognized arguments: --force\nSee 'kubectl virt stop --help' for usage."),
        ("stop a b", "error: unrecognized arguments: b\nSee 'kubectl virt stop --help' for usage."),
        ("stop vm a", "error: vm a: write vm/a\nSee 'kubectl virt stop --help' for usage."),
        ("console VirtualMachines a", "error: VirtualMachines a: write VirtualMachines/a\nSee 'kubectl virt console --help' for usage."),
        ("stop pod/a", "error: argument NAME: 'pod/a' names no virtual machine: write NAME or vm/NAME\nSee 'kubectl virt stop --help'"),
    ],
)
def test_a_mistake_names_the_command_whose_help_says_more(arguments: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before, the help of the whole program was named."""
    with pytest.raises(SystemExit) as ended:
        flags.parse(arguments.split())
    assert ended.value.code == 1
    assert said in capsys.readouterr().err


def test_flags_of_the_cluster_stand_before_and_after_the_command() -> None:
    parsed = flags.parse(["-n", "one", "stop", "vm/a", "--context", "two"])
    assert (parsed.command, parsed.name) == ("stop", "a")
    assert (parsed.selection.namespace, parsed.selection.context) == ("one", "two")
