"""The command line of ``kubectl virt``."""

from __future__ import annotations

import argparse
import functools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from apiserver.apis.meta import times
from apiserver.apis.virt.lifecycle import power
from apiserver.apis.virt.places import layout
from apiserver.apis.virt.spec import hot_plug
from apiserver.kubectl import portforward, rollout, top, usage
from apiserver.kubectl.access import Selection, version
from apiserver.kubectl.proxy import ADDRESS
from apiserver.kubectl.verbs import VERBS

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

KINDS: Final = frozenset({"vm", "vms", "virtualmachine", "virtualmachines", "virtualmachine.kubevirt.io", "virtualmachines.kubevirt.io"})
MIGRATION_KINDS: Final = frozenset({"vmmig", "migration", "migrations", "migration.kubevirt.io", "migrations.kubevirt.io"})

SET_KINDS: Final = frozenset(
    {
        "vmrs",
        "virtualmachinereplicaset",
        "virtualmachinereplicasets",
        "virtualmachinereplicaset.kubevirt.io",
        "virtualmachinereplicasets.kubevirt.io",
    }
)
SCROLLBACK: Final = "The console first shows its latest output, including what earlier users typed; the next user sees yours."
_GUEST_PATH: Final = re.compile(r"(?:[^/:@]+@)?(?:[A-Za-z][A-Za-z.]*/)?[a-z0-9][-a-z0-9.]*:")
"""[USER@][vm/]NAME: before a path; as for scp, a local path with a colon needs ./ before it."""
_DEVICE: Final = re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{4}|[0-9]{1,3}-[0-9]{1,3}")
LONGEST_SECONDS: Final = 365 * 24 * 3600.0
CANCEL: Final = "cancel-migration"
_ALIASES: Final = {"cancelmigration": CANCEL, "setpassword": "set-password"}
WITH_VALUE: Final = frozenset(
    {"-n", "--namespace", "--kubeconfig", "--context", "--cluster", "--user", "-s", "--server", "--token", "--as", "--as-uid", "--as-group"}
)
"""Of the cluster."""
_WAITS: Final = {
    "migrate": "show progress until the end; exit status 0 if the guest moved, else 1. Ctrl-C does not cancel the migration",
    "start": "wait until the guest runs, also if it is already being started; exit status 0 if it does, else 1",
    "resume": "wait until the guest runs; exit status 0 if it does, else 1",
    "restart": "wait until the guest runs again; exit status 0 if it does, else 1",
    "stop": "wait until the guest is off; exit status 0 if it is, else 1",
    "poweroff": "wait until the guest is off; exit status 0 if it is, else 1",
}
_WAIT_BY_DEFAULT: Final = frozenset({"freeze", "thaw"})
"""A backup must not begin before the result is known."""
WAIT_SECONDS: Final = 600.0
"""Default ``--timeout`` of ``--wait``."""


class Parser(argparse.ArgumentParser):
    """argparse with kubectl's words and exit code for errors."""

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Print the help; unlike argparse, raise OSError."""
        (file or sys.stdout).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with 1."""
        self.exit(1, f"error: {message}\nSee '{self.prog} --help' for usage.\n")


class Program(Parser):
    """The main parser, whose help lists the commands by purpose."""

    commands: Commands | None = None

    def format_help(self) -> str:
        """Return the help."""
        texts = self.commands.texts if self.commands is not None else {}
        cluster = _shared().format_help().partition("\n\n")[2]
        parts = (f"usage: {self.prog} COMMAND [NAME...] [flags]", self.description or "", usage.overview(texts), cluster)
        return "\n\n".join(part.rstrip() for part in parts) + f"\n\nHelp of a command: {self.prog} COMMAND --help\n"


class HelpFormatter(argparse.HelpFormatter):
    """argparse's help, with examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:") else super()._fill_text(text, width, indent)


class CommandParser(Parser):
    """A command's parser; it reports unknown flags itself, where argparse leaves them to the main parser."""

    def option_strings(self) -> list[str]:
        """Return this command's flags, short and long."""
        return [text for action in self._actions for text in action.option_strings]

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:  # noqa: ANN401  argparse's overloads
        """Return the flags and an empty list. Exits with 1 on unknown arguments, and on ``vm NAME`` for ``vm/NAME``."""
        parsed, more = super().parse_known_args(args, namespace)
        given: list[str] = [*getattr(parsed, "names", ()), *filter(None, [getattr(parsed, "name", "")]), *more]
        if len(given) > 1 and given[0].lower() in KINDS | SET_KINDS:
            self.error(f"{given[0]} {given[1]}: write {given[0]}/{given[1]}")
        if more:
            self.error(f"unrecognized arguments: {' '.join(more)}")
        return parsed, more


class Commands:
    """The program's commands, each with its parser."""

    def __init__(self, program: Parser) -> None:
        self._parsers = program.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=CommandParser)
        self.texts: dict[str, str] = {}
        """In the help."""
        self.parsers: dict[str, CommandParser] = {}

    def add(self, name: str, text: str, more: str = "", aliases: Sequence[str] = ()) -> CommandParser:
        """Return a new command's parser; ``text`` is its line in the list, ``more`` adds to its help."""
        description = f"{text[0].upper()}{text[1:]}. {more}".rstrip()
        self.texts[name] = text
        self.parsers[name] = self._parsers.add_parser(
            name,
            help=text,
            description=description,
            parents=[_shared()],
            allow_abbrev=False,
            aliases=aliases,
            epilog=usage.examples(name),
            formatter_class=HelpFormatter,
        )
        return self.parsers[name]

    def add_for_machine(self, name: str, text: str, more: str = "", named: Callable[[str], str] | None = None) -> CommandParser:
        """Add a command on one machine, and return its parser; ``named`` parses its name."""
        parser = self.add(name, text, more)
        parser.add_argument("name", metavar="NAME", type=named or _machine, help="the virtual machine: NAME or vm/NAME")
        return parser

    def add_for_machines(
        self, name: str, text: str, more: str = "", named: Callable[[str], str] | None = None, aliases: Sequence[str] = ()
    ) -> CommandParser:
        """Add a command on one or more machines, and return its parser; ``named`` parses each name."""
        parser = self.add(name, text, more, aliases)
        parser.add_argument("names", metavar="NAME", nargs="+", type=named or _machine, help="virtual machines: NAME or vm/NAME")
        return parser

    def add_actions(self, name: str, text: str, more: str, actions: Mapping[str, str]) -> dict[str, CommandParser]:
        """Add a command with further ones below it (name: text); return their parsers."""
        below = self.add(name, text, more).add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=CommandParser)
        for action, what in actions.items():
            self.parsers[f"{name} {action}"] = below.add_parser(
                action,
                help=what,
                description=f"{what[0].upper()}{what[1:]}.",
                parents=[_shared()],
                allow_abbrev=False,
                epilog=usage.examples(f"{name} {action}"),
                formatter_class=HelpFormatter,
            )
        return {action: self.parsers[f"{name} {action}"] for action in actions}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the arguments (None: the process'), always with ``selection``, ``command``, and ``name`` or ``names``.

    Exits with 1 on an error, with 0 after ``--help`` or ``--version``.
    """
    program, commands, waiting = _program()
    arguments, guest_command = _split(sys.argv[1:] if arguments is None else arguments)
    parsed = program.parse_args(arguments)
    parsed.guest_command = guest_command
    parsed.command = _ALIASES.get(parsed.command, parsed.command)
    if parsed.command == CANCEL:
        _settle_names(waiting[CANCEL], parsed)
    if parsed.command in waiting:
        _settle_timeout(waiting[parsed.command], parsed)
    if parsed.command in ("ssh", "scp"):
        _settle_login(commands.parsers[parsed.command], parsed)
    if parsed.command == "port-forward" and parsed.stdio and len(parsed.ports) > 1:
        commands.parsers[parsed.command].error("--stdio takes one PORT")
    parsed.selection = _selection(parsed)
    return parsed


def options() -> dict[str, list[str]]:
    """Return each command's flags."""
    _, commands, _ = _program()
    return {name: parser.option_strings() for name, parser in commands.parsers.items()}


@functools.cache
def _program() -> tuple[Program, Commands, dict[str, CommandParser]]:
    program = Program(
        prog="kubectl virt",
        description="Manage the virtual machines of a cluster, and their guests.",
        parents=[_shared()],
        allow_abbrev=False,
    )
    program.add_argument("--version", action="version", version=f"kubectl-virt {version()}", help="print the version of this plugin")
    program.commands = commands = Commands(program)
    _add_create(commands)
    _add_console(commands)
    _add_displays(commands)
    _add_usbredir(commands)
    _add_port_forward(commands)
    _add_ssh(commands)
    _add_guestinfo(commands)
    commands.add_for_machine("domainxml", "print the domain XML that libvirt uses", "The machine must be on.")
    _add_logs(commands)
    picture = commands.add_for_machine("screenshot", "write the screen to a PNG file")
    picture.add_argument("-o", "--output", metavar="FILE", required=True, help="the file; - is standard output")
    _add_top(commands)
    passwords = commands.add_for_machines(
        "set-password",
        "set a user's password in the guest, through its agent",
        "It asks for the password, or reads it from standard input.",
        aliases=["setpassword"],
    )
    passwords.add_argument("-l", "--username", required=True, metavar="USER", help="the user of the guest")
    passwords.add_argument("--encrypted", action="store_true", help="the password is a hash, as in /etc/shadow")
    _add_dry_run(passwords)
    _add_volumes(commands)
    _add_rollout(commands)
    _add_administration(commands)
    return program, commands, {**_add_verbs(commands), CANCEL: _add_cancel_migration(commands)}


def _add_create(commands: Commands) -> None:
    create = commands.add(
        "create", "print the manifest of a virtual machine", "On a terminal, it asks for the name, memory and disk if they are missing."
    )
    create.add_argument("name", metavar="NAME", nargs="?", default="", help="the name of the machine")
    create.add_argument("--memory", default="", metavar="QUANTITY", help="the guest's memory (default 1Gi)")
    create.add_argument("--cpus", type=int, default=0, metavar="NUMBER", help="the guest's processors (default 1)")
    create.add_argument(
        "--image", default="", metavar="REFERENCE", help="a container image with the disk; changes to it end with the guest"
    )
    create.add_argument("--image-path", default="", metavar="PATH", help="the disk's file in the image")
    create.add_argument("--claim", default="", metavar="NAME", help="the PersistentVolumeClaim of a disk")
    create.add_argument("--cloud-init", default="", metavar="FILE", help="cloud-init's user data")
    create.add_argument("--ssh-secret", default="", metavar="NAME", help="the Secret with public keys for logins")
    create.add_argument("--run-strategy", default="", choices=power.RUN_STRATEGIES, help="what happens when the guest ends")


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "ssh" not in arguments or "--" not in arguments[arguments.index("ssh") :]:
        return arguments, []
    place = arguments.index("--", arguments.index("ssh"))
    return arguments[:place], arguments[place + 1 :]


def _add_console(commands: Commands) -> None:
    console = commands.add_for_machine("console", "type into the serial console; Ctrl-] leaves", SCROLLBACK)
    console.add_argument(
        "--wait", type=_seconds, default=0.0, metavar="DURATION", help="how long to wait for the machine to run (default 0s)"
    )
    console.add_argument(
        "--reconnect",
        type=_seconds,
        default=60.0,
        metavar="DURATION",
        help="how long to try to reconnect after the connection breaks (default 1m)",
    )
    console.add_argument(
        "--linger",
        type=_seconds,
        default=1.0,
        metavar="DURATION",
        help="without a terminal: how long to print output after the end of the input (default 1s)",
    )
    console.add_argument("--port", type=int, choices=range(layout.SERIAL_PORTS), default=0, help="serial port, from 0 (default 0)")


def _add_logs(commands: Commands) -> None:
    logs = commands.add_for_machine("logs", "print the guest's output on its serial port", "Its pod keeps the newest 512 KiB.")
    logs.add_argument("-f", "--follow", action="store_true", help="also print new output, until the guest is off")
    logs.add_argument("--tail", type=_lines, metavar="LINES", help="how many of the newest lines (default: all that are kept)")
    logs.add_argument("--port", type=int, choices=range(layout.SERIAL_PORTS), default=0, help="serial port, from 0 (default 0)")


def _add_displays(commands: Commands) -> None:
    for name, viewer in (("vnc", "a VNC viewer"), ("spice", "remote-viewer")):
        display = commands.add_for_machine(name, f"show the screen in {viewer} on this computer")
        display.add_argument("--proxy-only", action="store_true", help="start no viewer; print the port as JSON and serve it until Ctrl-C")
        display.add_argument("--port", type=_port, default=0, help="local port on 127.0.0.1 (default: any free port)")


def _add_usbredir(commands: Commands) -> None:
    usb = commands.add_for_machine(
        "usbredir",
        "redirect a USB device of this computer to the guest",
        "The machine needs a free slot: spec.domain.devices.redirectedDevices.",
    )
    usb.add_argument(
        "--device",
        type=_device,
        help="VENDOR:PRODUCT or BUS-NUMBER, which usbredirect serves; default: print the port as JSON and serve it until Ctrl-C",
    )
    slots = range(layout.REDIRECTED_DEVICES)
    usb.add_argument("--slot", type=int, choices=slots, default=None, help="slot, from 0 (default: the first free one)")
    usb.add_argument("--port", type=_port, default=0, help="local port on 127.0.0.1 (default: any free port)")


def _add_port_forward(commands: Commands) -> None:
    forward = commands.add_for_machine(
        "port-forward",
        "forward ports of this computer to ports of the guest",
        "PORT as [PROTOCOL/][LOCAL:]PORT: 22, 2222:22, :22 for any local port that is free, udp/5353:53.",
    )
    forward.add_argument("ports", metavar="PORT", nargs="+", type=_forward, help="port of the guest, after the local one if they differ")
    forward.add_argument("--address", default=ADDRESS, help=f"local address (default {ADDRESS}); others let other computers in")
    forward.add_argument("--stdio", action="store_true", help="connect standard input and output to the one PORT instead, as for ssh")


def _add_ssh(commands: Commands) -> None:
    ssh = commands.add_for_machine(
        "ssh",
        "log in to the guest with this computer's ssh",
        "NAME may be USER@NAME. The guest's shell runs COMMAND after --. In ssh's configuration, its host is NAME.NAMESPACE.vm.",
        named=_login,
    )
    scp = commands.add(
        "scp", "copy files to or from the guest with this computer's scp", "FROM or TO is [USER@]NAME:PATH, the other one a local path."
    )
    scp.add_argument("source", metavar="FROM")
    scp.add_argument("target", metavar="TO")
    scp.add_argument("-r", "--recursive", action="store_true", help="copy directories as a whole")
    scp.set_defaults(name="")
    for parser in (ssh, scp):
        parser.add_argument("-i", "--identity-file", default="", metavar="FILE", help="private key")
        parser.add_argument("-l", "--username", default="", metavar="USER", help="user of the guest (default: as for ssh)")
        parser.add_argument("-p", "--port", type=_port, default=22, help="port of the guest (default 22)")
        parser.add_argument("-o", "--ssh-option", action="append", default=[], metavar="OPTION", help="option of ssh's configuration")


def _settle_login(parser: CommandParser, parsed: argparse.Namespace) -> None:
    """Split USER@NAME in ``parsed.name``, which for scp comes from the guest's path."""
    if parsed.command == "scp":
        paths = [parsed.source, parsed.target]
        guests = [each for each in paths if _GUEST_PATH.match(each)]
        if len(guests) != 1:
            parser.error("write the guest's path as [USER@]NAME:PATH, and the other one as a path of this computer")
        login, _, path = guests[0].partition(":")
        parsed.paths = [f":{path}" if each == guests[0] else each for each in paths]
        try:
            parsed.name = _login(login)
        except argparse.ArgumentTypeError as error:
            parser.error(str(error))
    user, _, parsed.name = parsed.name.rpartition("@")
    if user and parsed.username and user != parsed.username:
        parser.error(f"two users are given, {user} and {parsed.username}")
    parsed.username = user or parsed.username


def _add_guestinfo(commands: Commands) -> None:
    guest = commands.add_for_machine("guestinfo", "show information from the guest", "The guest must run qemu-guest-agent.")
    guest.add_argument(
        "-o",
        "--output",
        choices=("table", "wide", "json", "yaml"),
        default="table",
        help="wide: with all applications; json, yaml: all fields",
    )


def _add_rollout(commands: Commands) -> None:
    parsers = commands.add_actions(
        rollout.COMMAND,
        "update the machines of VirtualMachineReplicaSets",
        "It works like kubectl rollout. After an edit of spec.template, a set with spec.ordinals updates its machines.",
        rollout.ACTIONS,
    )
    for action, parser in parsers.items():
        parser.add_argument("names", metavar="NAME", nargs="+", type=_set, help="sets: NAME or vmrs/NAME")
        if action not in rollout.READS:
            _add_dry_run(parser)
    parsers["status"].add_argument(
        "-w", "--watch", nargs="?", choices=("true", "false"), const="true", default="true", help="false: print the present state only"
    )
    parsers["status"].add_argument(
        "--timeout", type=_seconds, default=0.0, metavar="DURATION", help="time limit; exit status 1 after it (default 0s: none)"
    )
    for action in rollout.READS:
        parsers[action].add_argument("--revision", type=_revision, default=0, metavar="NUMBER", help=rollout.READS[action])
    parsers["undo"].add_argument(
        "--to-revision",
        type=_revision,
        default=0,
        metavar="NUMBER",
        help="revision to restore (default: the one before), from kubectl virt rollout history",
    )


def _add_volumes(commands: Commands) -> None:
    adding = commands.add_for_machine(
        "addvolume", "add a claim as a disk; a running guest gets it at once", "It edits spec.domain.devices.disks."
    )
    adding.add_argument("--claim", metavar="NAME", required=True, help="the PersistentVolumeClaim")
    adding.add_argument(
        "--disk-name", metavar="NAME", help="the disk's name in the spec (default: the claim's), or that of an empty CD-ROM drive"
    )
    adding.add_argument("--create", metavar="SIZE", help="create a blank disk in a claim without disk.img, such as 10Gi")
    adding.add_argument("--serial", metavar="TEXT", help="the serial number that the guest sees")
    adding.add_argument("--bus", choices=hot_plug.BUSES, help="the bus (default virtio)")
    removing = commands.add_for_machine(
        "removevolume", "remove a disk, or eject the medium of a CD-ROM drive, once the guest gives it back"
    )
    removing.add_argument("--claim", metavar="NAME", help="the disk's PersistentVolumeClaim")
    removing.add_argument("--disk-name", metavar="NAME", help="the disk's name in the spec")


def _add_administration(commands: Commands) -> None:
    moving = commands.add(
        "move-etcd",
        "move etcd, which stores all virtual machines, to another node",
        (
            "For administrators. The API of virtual machines is unavailable for some seconds; guests keep "
            "running. -n is the namespace of the installation."
        ),
    )
    moving.add_argument("--to", metavar="NODE", required=True, help="the node")
    moving.set_defaults(name="")
    listing = commands.add("outdated", "list the machines with a virt-launcher of another version, and how each is updated")
    listing.add_argument("-A", "--all-namespaces", action="store_true", help="in all namespaces")
    listing.set_defaults(name="")
    nodes = commands.add("nodes", "list the nodes with state, machines, acceleration and CPU", "For administrators.")
    nodes.set_defaults(name="")
    off = commands.add(
        "fence",
        "state that a node is off, so that its machines start on other nodes",
        "For administrators. It refuses while the node reports. If the node is on nevertheless, guests run twice and destroy their disks.",
    )
    off.add_argument("node", metavar="NODE", help="the node")
    off.add_argument("--off", action="store_true", help="required: you are certain that the node is off")
    off.add_argument("--yes", action="store_true", help="do not ask for the name of the node")
    repaired = commands.add(
        "unfence", "state that a fenced node is repaired, so that machines may start on it again", "For administrators."
    )
    repaired.add_argument("node", metavar="NODE", help="the node")
    for parser in (off, repaired):
        parser.set_defaults(name="")
    versions = commands.add("version", "print the versions of this plugin and of virt-api")
    versions.add_argument("--client", action="store_true", help="print this plugin's version only")
    versions.add_argument("-o", "--output", choices=("json", "yaml"), default="", help="the format")
    versions.set_defaults(name="")


def _add_top(commands: Commands) -> None:
    parser = commands.add("top", "show the processor time and memory that machines use, from the cluster's metrics API (metrics-server)")
    parser.add_argument("name", metavar="NAME", nargs="?", type=_machine, help="one virtual machine: NAME or vm/NAME")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="in all namespaces")
    parser.add_argument("-l", "--selector", default="", help="only machines with these labels, for example app=web")
    parser.add_argument(
        "--sort-by", choices=tuple(top.COLUMNS), default="", help="sort by this column, the largest first (default: by name)"
    )
    parser.add_argument("--no-headers", action="store_true", help="print no column titles")


def _add_verbs(commands: Commands) -> dict[str, CommandParser]:
    parsers = {verb: commands.add_for_machines(verb, text) for verb, text in VERBS.items() if verb != "cancelmigration"}
    for verb, parser in parsers.items():
        text = _WAITS.get(verb, "wait for the end; exit status 0 if it succeeded, else 1")
        _add_waiting(parser, text, always=verb in _WAIT_BY_DEFAULT)
        _add_dry_run(parser)
    for verb in ("start", "migrate"):
        parsers[verb].add_argument("--node", metavar="NODE", help="the node to use, by its label kubernetes.io/hostname")
    parsers["start"].add_argument("--paused", action="store_true", help="pause the guest before its first instruction")
    parsers["start"].add_argument(
        "--discard-state",
        action="store_true",
        help="delete the saved memory of a suspended guest, and boot it; unwritten data is lost",
    )
    grace = parsers["stop"].add_mutually_exclusive_group()
    grace.add_argument(
        "--grace-period", type=int, metavar="SECONDS", help="the guest's time to shut down (default: terminationGracePeriodSeconds)"
    )
    grace.add_argument("--force", action="store_true", help="power it off at once, like poweroff")
    sendkey = parsers["sendkey"]
    sendkey.add_argument(
        "--keys",
        required=True,
        type=lambda text: text.split(","),
        metavar="KEY,KEY...",
        help="keys to press together, such as KEY_LEFTCTRL,KEY_C",
    )
    sendkey.add_argument("--hold", type=_seconds, default=None, metavar="DURATION", help="how long to hold them down (default 100ms)")
    parsers["freeze"].add_argument(
        "--unfreeze-timeout",
        type=_seconds,
        metavar="DURATION",
        help="thaw them automatically after this time (default 5m, at most 1h)",
    )
    parsers["migrate"].add_argument(
        "--priority",
        type=int,
        metavar="NUMBER",
        help="priority in the queue, from -100 to 100 (default 0), highest first; above 0 requires the right to patch nodes",
    )
    return parsers


def _add_cancel_migration(commands: Commands) -> CommandParser:
    cancel = commands.add_for_machines(CANCEL, VERBS["cancelmigration"], named=_machine_or_migration, aliases=["cancelmigration"])
    cancel.add_argument("--migration", action="store_true", help="NAME is the name of a Migration, as kubectl virt migrate prints it")
    _add_waiting(cancel, "wait for the end; exit status 0 if the guest stayed, 1 if it had already moved")
    _add_dry_run(cancel)
    return cancel


def _add_dry_run(parser: CommandParser) -> None:
    parser.add_argument("--dry-run", choices=("none", "server"), default="none", help="server: check the request and write nothing")


def _add_waiting(parser: CommandParser, text: str, *, always: bool = False) -> None:
    parser.add_argument("--wait", action="store_true", default=always, help=f"{text}{' (default)' if always else ''}")
    if always:
        parser.add_argument(
            "--wait=false", action="store_false", dest="wait", help="do not wait for the result, so exit status 0 tells no success"
        )
    parser.add_argument("--timeout", type=_seconds, metavar="DURATION", help="time limit of --wait (default 10m)")


def _settle_timeout(parser: CommandParser, parsed: argparse.Namespace) -> None:
    if parsed.timeout is not None and not parsed.wait:
        parser.error("--timeout requires --wait")
    if parsed.timeout is None:
        parsed.timeout = WAIT_SECONDS


def _settle_names(parser: CommandParser, parsed: argparse.Namespace) -> None:
    found = []
    for text in parsed.names:
        kind, _, name = text.rpartition("/")
        if kind.lower() in KINDS and parsed.migration:
            parser.error(f"{text} names a virtual machine, but --migration requires the name of a Migration")
        found.append((name, parsed.migration or kind.lower() in MIGRATION_KINDS))
    parsed.names = [name for name, _ in found]
    parsed.migrations = frozenset(name for name, is_migration in found if is_migration)


@functools.cache
def _shared() -> CommandParser:
    flags = CommandParser(add_help=False, argument_default=argparse.SUPPRESS)
    group = flags.add_argument_group("cluster, with the same flags as kubectl")
    group.add_argument("-n", "--namespace", help="namespace to use")
    group.add_argument("--kubeconfig", metavar="FILE")
    group.add_argument("--context")
    group.add_argument("--cluster")
    group.add_argument("--user")
    group.add_argument("-s", "--server", metavar="URL")
    group.add_argument("--token", help="bearer token")
    group.add_argument("--as", dest="impersonate_user", metavar="USER")
    group.add_argument("--as-uid", dest="impersonate_uid", metavar="UID")
    group.add_argument("--as-group", dest="impersonate_groups", metavar="GROUP", action="append")
    return flags


def _selection(parsed: argparse.Namespace) -> Selection:
    given = {name: getattr(parsed, name) for name in Selection.__dataclass_fields__ if hasattr(parsed, name)}
    given["impersonate_groups"] = tuple(given.get("impersonate_groups") or ())
    return Selection(**given)


def _machine(text: str) -> str:
    kind, slash, name = text.rpartition("/")
    if (slash and kind.lower() not in KINDS) or not name:
        raise argparse.ArgumentTypeError(f"{text!r} does not name a virtual machine: use NAME or vm/NAME")
    return name


def _set(text: str) -> str:
    kind, slash, name = text.rpartition("/")
    if (slash and kind.lower() not in SET_KINDS) or not name:
        raise argparse.ArgumentTypeError(f"{text!r} does not name a set: use NAME or vmrs/NAME")
    return name


def _revision(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a revision")
    return int(text)


def _machine_or_migration(text: str) -> str:
    kind, slash, name = text.rpartition("/")
    if not (slash and name and kind.lower() in MIGRATION_KINDS):
        _machine(text)
    return text


def _login(text: str) -> str:
    user, at, machine = text.rpartition("@")
    if at and (not user or user.startswith("-")):
        raise argparse.ArgumentTypeError(f"{text!r} names no user: write USER@NAME")
    return f"{user}{at}{_machine(machine)}"


def _forward(text: str) -> portforward.Local:
    try:
        return portforward.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: write PORT, LOCAL:PORT or udp/LOCAL:PORT (1 to 65535)") from error


def _lines(text: str) -> int | None:
    if text == "-1":
        return None
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of lines")
    return int(text)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)


def _device(text: str) -> str:
    if not _DEVICE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a USB device: use VENDOR:PRODUCT such as 1050:0407, or BUS-NUMBER such as 1-4")
    return text


def _seconds(text: str) -> float:
    try:
        seconds = times.parse_duration(text).total_seconds()
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 30s or 5m, of at most a year (8760h)") from error
    if seconds < 0:
        raise argparse.ArgumentTypeError("a duration must not be negative")
    if seconds > LONGEST_SECONDS:
        raise argparse.ArgumentTypeError("the longest duration is a year (8760h)")
    return seconds
