from __future__ import annotations

import pytest

from apiserver.kubectl import flags, usage, verbs
from apiserver.kubectl.access import version


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("stop a --now", "error: unrecognized arguments: --now\nSee 'kubectl virt stop --help' for usage."),
        ("console a b", "error: unrecognized arguments: b\nSee 'kubectl virt console --help' for usage."),
        ("stop a --force --grace-period 1", "error: argument --grace-period: not allowed with argument --force\nSee 'kubectl virt stop"),
        ("sendkey a", "error: the following arguments are required: --keys\nSee 'kubectl virt sendkey --help'"),
        ("stop vm a", "error: vm a: write vm/a\nSee 'kubectl virt stop --help' for usage."),
        ("console VirtualMachines a", "error: VirtualMachines a: write VirtualMachines/a\nSee 'kubectl virt console --help' for usage."),
        ("migrate a --timeout 5m", "error: --timeout requires --wait\nSee 'kubectl virt migrate --help'"),
        ("cancel-migration a --timeout 0s", "requires --wait\nSee 'kubectl virt cancel-migration --help'"),
        (
            "cancel-migration VM/a --migration",
            "error: VM/a names a virtual machine, but --migration requires the name of a Migration\n"
            "See 'kubectl virt cancel-migration --help'",
        ),
        ("port-forward a 0", "error: argument PORT: '0' is no port: write PORT, LOCAL:PORT or udp/LOCAL:PORT (1 to 65535)\nSee"),
        ("port-forward a --stdio 22 23", "error: --stdio takes one PORT\nSee"),
        ("ssh @a", "error: argument NAME: '@a' names no user: write USER@NAME\nSee 'kubectl virt ssh --help'"),
        ("ssh root@a -l me", "error: two users are given, root and me\nSee 'kubectl virt ssh --help'"),
        ("ssh a ls", "error: unrecognized arguments: ls\nSee 'kubectl virt ssh --help'"),
        (
            "scp a b",
            "error: write the guest's path as [USER@]NAME:PATH, and the other one as a path of this computer\nSee 'kubectl virt scp",
        ),
        ("scp a:x b:y", "error: write the guest's path as [USER@]NAME:PATH"),
        ("scp pod/a:x .", "error: 'pod/a' does not name a virtual machine: use NAME or vm/NAME\nSee 'kubectl virt scp"),
        (
            "stop pod/a",
            ("error: argument NAME: 'pod/a' does not name a virtual machine: use NAME or vm/NAME\nSee 'kubectl virt stop --help'"),
        ),
    ],
)
def test_usage_error_names_the_commands_help(arguments: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        flags.parse(arguments.split())
    assert ended.value.code == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", ["move-etcd", "outdated", "top", "nodes", "fence", "unfence", "stop", "console", "guestinfo", "migrate"]
)
def test_help_begins_with_a_sentence(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        flags.parse([command, "--help"])
    described = capsys.readouterr().out.split("\n\n")[1]
    assert described[0].isupper(), described


def test_flags_of_the_cluster_stand_before_and_after_the_command() -> None:
    parsed = flags.parse(["-n", "one", "stop", "vm/a", "--context", "two"])
    assert (parsed.command, parsed.names) == ("stop", ["a"])
    assert (parsed.selection.namespace, parsed.selection.context) == ("one", "two")


@pytest.mark.parametrize("verb", ["freeze", "thaw"])
def test_freeze_and_thaw_wait_unless_told_otherwise(verb: str) -> None:
    assert flags.parse([verb, "a", "--timeout", "5s"]).wait
    assert flags.parse([verb, "--wait", "a"]).names == ["a"]
    assert not flags.parse([verb, "a", "--wait=false"]).wait
    assert not flags.parse(["reset", "a"]).wait


def test_a_migration_is_waited_for_if_asked() -> None:
    assert not flags.parse(["migrate", "a"]).wait
    parsed = flags.parse(["migrate", "vm/a", "--wait", "--timeout", "90s"])
    assert (parsed.names, parsed.wait, parsed.timeout) == (["a"], True, 90.0)
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
    assert (parsed.command, parsed.names, parsed.migrations) == ("cancel-migration", [name], {name} if by_migration else set())


@pytest.mark.parametrize(("alias", "command"), [("cancelmigration a b", "cancel-migration"), ("setpassword a b -l debian", "set-password")])
def test_verbs_names_are_commands_too(alias: str, command: str) -> None:
    parsed = flags.parse([*alias.split(), "--dry-run", "server"])
    assert (parsed.command, parsed.names, parsed.dry_run) == (command, ["a", "b"], "server")


def test_no_other_command_takes_the_name_of_a_migration(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["migrate", "vmmig/a"], ["cancel-migration", "pod/a"]):
        with pytest.raises(SystemExit) as ended:
            flags.parse(arguments)
        assert ended.value.code == 1
    assert "does not name a virtual machine" in capsys.readouterr().err


def test_its_release_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        flags.parse(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"kubectl-virt {version()}\n"


@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        ("start a b", {}),
        ("start a --paused --node n", {"paused": True, "nodeSelector": {"kubernetes.io/hostname": "n"}}),
        ("stop a --grace-period 0", {"gracePeriodSeconds": 0}),
        ("stop a --force", {"gracePeriodSeconds": 0}),
        ("sendkey a --keys KEY_A,30", {"keys": ["KEY_A", "30"]}),
        ("sendkey a --keys KEY_A --hold 1.5s", {"keys": ["KEY_A"], "holdMilliseconds": 1500}),
        ("freeze a", {}),
        ("freeze a --unfreeze-timeout 2m", {"unfreezeTimeoutSeconds": 120}),
        ("migrate a --node n --priority -5", {"nodeSelector": {"kubernetes.io/hostname": "n"}, "priority": -5}),
    ],
)
def test_flags_become_the_body_of_the_verb(arguments: str, body: dict[str, object]) -> None:
    assert verbs.body_of(flags.parse(arguments.split())) == body


def test_help_lists_commands_by_purpose_and_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        flags.parse(["--help"])
    told = capsys.readouterr().out
    assert told.index("Turn on and off:") < told.index("  poweroff ") < told.index("Migrate:") < told.index("  cancel-migration ")
    for command in flags.options():
        assert " " in command or f"  {command} " in told
        assert usage.EXAMPLES[command], command
        with pytest.raises(SystemExit):
            flags.parse([*command.split(), "--help"])
        assert usage.examples(command) in capsys.readouterr().out


@pytest.mark.parametrize("command", usage.EXAMPLES)
def test_examples_are_valid_commands(command: str) -> None:
    for example in usage.EXAMPLES[command]:
        assert flags.parse(example.partition(" | ")[0].split()).command == command.split(maxsplit=1)[0]


@pytest.mark.parametrize(
    ("arguments", "user", "name", "command"),
    [
        ("ssh a", "", "a", []),
        ("ssh root@vm/a -- ls -l --", "root", "a", ["ls", "-l", "--"]),
        ("-n ns ssh vm/a -l me@corp -p 2222 -i key", "me@corp", "a", []),
        ("ssh me@corp@a", "me@corp", "a", []),
    ],
)
def test_login_is_user_and_machine(arguments: str, user: str, name: str, command: list[str]) -> None:
    parsed = flags.parse(arguments.split())
    assert (parsed.username, parsed.name, parsed.guest_command) == (user, name, command)


@pytest.mark.parametrize(
    ("arguments", "user", "name", "paths"),
    [
        ("scp x vm/a:/tmp", "", "a", ["x", ":/tmp"]),
        ("scp root@a:/etc/fstab ./b:c", "root", "a", [":/etc/fstab", "./b:c"]),
        ("scp -r a: .", "", "a", [":", "."]),
        ("scp a:x:y -p 23 /b:c", "", "a", [":x:y", "/b:c"]),
    ],
)
def test_copy_has_one_path_of_the_guest(arguments: str, user: str, name: str, paths: list[str]) -> None:
    parsed = flags.parse(arguments.split())
    assert (parsed.username, parsed.name, parsed.paths) == (user, name, paths)
