"""docs/plugins.md's requirements, tested on our plugins and the example."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.spec import attachments
from handler.network import namespaces, results, setup
from handler.network.binding import Unsupported
from handler.plugins import answers, protocol, requests, running
from handler.plugins.calling import NODE_NETNS, Plugins
from handler.plugins.faults import Failed, NotFound, TimedOut
from handler.plugins.protocol import Command
from tests.host.handler import pods
from tests.host.handler.frames import BROADCAST, IPV4, ethernet, udp
from tests.host.handler.pods import CALLER, Pod, Tap, run

pytestmark = pytest.mark.host

EXAMPLE = Path(__file__).parents[3] / "examples/plugins/isolated/isolated.py"
MAC = "52:54:00:00:00:77"
INTERFACES: dict[str, dict[str, Any]] = {
    "masquerade": {"name": "default", "type": "masquerade", "mac": MAC},
    "bridge, pod's network": {"name": "default", "type": "bridge", "mac": MAC},
    "bridge, further network": {"name": "lan", "type": "bridge", "network": "lan", "mac": MAC},
    "example": {"name": "private", "type": "plugin", "plugin": "isolated", "mac": MAC, "options": {"segment": "blue"}},
}
OURS = setup.ours()
"""Shared, because each plugin then describes itself once."""
DESCRIPTION = '{"version": "1.0.0", "supportedVersions": ["1.0.0"], "kinds": ["network"]}'


def a_vm(*interfaces: dict[str, Any], uid: str = "3f0e") -> dict[str, Any]:
    return {
        "metadata": {"name": "testvm", "namespace": "default", "uid": uid},
        "spec": {"domain": {"devices": {"interfaces": list(interfaces)}}},
    }


@pytest.fixture
def pod() -> Iterator[Pod]:
    with pods.a_pod() as made:
        link = attachments.link("lan")
        run("ip", "-n", made.caller, "link", "add", "lan", "type", "veth", "peer", "name", link, "netns", made.name)
        yield made


def plugins_in(directory: Path, node_netns: str = NODE_NETNS) -> Plugins:
    shutil.copy(EXAMPLE, directory / "isolated")
    return Plugins(directory, {"network": frozenset({"isolated", "liar"})}, node_netns=node_netns)


@pytest.fixture
def theirs(tmp_path: Path) -> Plugins:
    return plugins_in(tmp_path)


@pytest.fixture(scope="module")
def liar(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, setup.Networks]:
    """Return a plugin's path, and Networks that call it."""
    directory = tmp_path_factory.mktemp("plugins")
    return directory / "liar", setup.Networks(plugins_in(directory))


@dataclass(frozen=True)
class Asking:
    plugins: Plugins
    name: str
    pod: Pod
    interface: dict[str, Any]
    command: tuple[str, ...]
    variables: Mapping[str, str]

    @property
    def document(self) -> dict[str, Any]:
        (wanted,) = setup.wanted(a_vm(self.interface))
        return {**requests.common(a_vm(), "pod-1"), "interface": results.document_of(wanted)}

    @property
    def tap(self) -> str:
        return str(self.document["interface"]["tap"])

    async def __call__(self, command: Command, *, gone: bool = False, **more: Any) -> Mapping[str, Any]:
        pod = {protocol.NETNS_VARIABLE: f"/run/netns/{self.pod.name}"}
        node = {protocol.NODE_NETNS_VARIABLE: f"/run/netns/{self.pod.caller}"}
        return await self.plugins.call("network", self.name, command, {**self.document, **more}, {**node, **({} if gone else pod)})

    async def commands(self) -> frozenset[Command]:
        return (await self.plugins.describe("network", self.name)).commands

    async def raw(self, document: bytes) -> answers.Output:
        return await running.run(self.command, document, {**os.environ, **self.variables, protocol.COMMAND_VARIABLE: "ADD"})

    def links(self) -> set[str]:
        return {each["ifname"] for each in json.loads(run("ip", "-n", self.pod.name, "-json", "link", "show"))}


@pytest.fixture(params=INTERFACES)
def ask(request: pytest.FixtureRequest, pod: Pod, theirs: Plugins, tmp_path: Path) -> Asking:
    interface = INTERFACES[request.param]
    if request.param == "example":
        return Asking(theirs, "isolated", pod, interface, (str(tmp_path / "isolated"),), {protocol.NODE_NETNS_VARIABLE: "/proc/1/ns/net"})
    own = setup.own()
    return Asking(OURS, interface["type"], pod, interface, own.command, own.environment)


async def test_plugin_describes_itself(ask: Asking) -> None:
    found = await ask.plugins.describe("network", ask.name)
    assert protocol.VERSION in found.versions
    assert found.kinds == ("network",)


async def test_plugin_adds_a_tap_idempotently(ask: Asking) -> None:
    first, second = await ask("ADD"), await ask("ADD")
    assert first == second
    assert (first["tap"], first["mac"]) == (ask.tap, MAC)
    told = json.loads(run("ip", "-n", ask.pod.name, "-json", "-details", "link", "show", "dev", ask.tap))
    (wanted,) = setup.wanted(a_vm(ask.interface))
    made = results.of_theirs(wanted, {key: first[key] for key in ("tap", "mac", "addresses")}, live_migration=True)
    assert results.tap_problem(made, told, setup.names_of_user(), several_queues=False) == ""
    assert (await ask("CHECK", prevResult=first)).keys() <= {"version"}


async def test_plugin_detects_and_recreates_a_missing_tap(ask: Asking) -> None:
    made = await ask("ADD")
    run("ip", "-n", ask.pod.name, "link", "delete", ask.tap)
    if "CHECK" in await ask.commands():
        with pytest.raises(Failed, match="code 100"):
            await ask("CHECK", prevResult=made)
    assert await ask("ADD") == made
    assert ask.tap in ask.links()


async def test_plugin_deletes_repeatedly_and_without_a_pod(ask: Asking) -> None:
    before = {each["ifname"] for each in json.loads(run("ip", "-n", ask.pod.caller, "-json", "link", "show"))}
    made = await ask("ADD")
    for _ in range(2):
        await ask("DEL", prevResult=made)
        assert "DEL" not in await ask.commands() or ask.tap not in ask.links()
        # A plugin that needs no DEL may only make what ends with the pod.
        assert {each["ifname"] for each in json.loads(run("ip", "-n", ask.pod.caller, "-json", "link", "show"))} == before
    await ask("DEL", gone=True, prevResult=made)
    await ask("DEL", gone=True)
    assert await ask("ADD") == made


@pytest.mark.parametrize("ask", ["masquerade", "example"], indirect=True)
@pytest.mark.parametrize(
    ("document", "code"),
    [(b"garbage", 6), (b"", 6), (b'{"version": "9.0.0", "kind": "network"}', 1)],
    ids=["garbage", "nothing", "version"],
)
async def test_plugin_reports_errors_for_unknown_input(ask: Asking, document: bytes, code: int) -> None:
    with pytest.raises(Failed, match=rf"\(code {code}\)$"):
        answers.result_of(ask.name, "ADD", await ask.raw(document), None)


async def test_no_segment_of_another_name_and_no_other_option_is_taken(theirs: Plugins, pod: Pod) -> None:
    for options, words in (({"vlan": "7"}, "unknown option vlan"), ({"segment": "$(reboot)"}, "option segment: must be")):
        vm = a_vm({**INTERFACES["example"], "options": options})
        with pytest.raises(Unsupported, match=f"{words}.*code 7"):
            await setup.Networks(theirs).prepare(vm, "pod-1", pod.launcher)


async def test_guests_of_a_segment_meet_and_those_of_another_do_not(tmp_path: Path) -> None:
    with ExitStack() as stack:
        one, other, stranger = (stack.enter_context(pods.a_pod()) for _ in range(3))
        networks, taps = setup.Networks(plugins_in(tmp_path, node_netns=f"/run/netns/{one.caller}")), []
        for position, (pod, segment) in enumerate(((one, "blue"), (other, "blue"), (stranger, "green"))):
            private = {"name": "private", "type": "plugin", "plugin": "isolated", "options": {"segment": segment}}
            vm = a_vm(private, {"name": "default"}, uid=f"vm-{position}")
            made = await networks.prepare(vm, f"pod-{position}", pod.launcher)
            assert [each.name for each in made] == ["private", "default"]
            assert (made[0].addresses, made[0].live_migration, made[1].addresses) == (
                (),
                False,
                (pods.POD, pods.POD6)[: len(made[1].addresses)],
            )
            assert made == await networks.prepare(vm, f"pod-{position}", pod.launcher)
            taps.append((Tap(pod, made[0].tap), made[0].mac))
        (first, mac), (second, _), (third, _) = taps
        try:
            hello = ethernet(mac, IPV4, udp("192.168.9.1", CALLER, b"HELLO-SEGMENT"), BROADCAST)
            spoof = ethernet("52:54:00:00:00:99", IPV4, udp("192.168.9.1", CALLER, b"SPOOFED"), BROADCAST)
            assert first.send(spoof)
            assert first.send(hello)
            heard = second.receive(lambda frame: b"HELLO-SEGMENT" in frame or b"SPOOFED" in frame)
            assert b"SPOOFED" not in heard
            with pytest.raises(TimeoutError):
                third.receive(lambda frame: b"HELLO-SEGMENT" in frame, 0.5)
        finally:
            for tap, _ in taps:
                tap.close()


@pytest.mark.parametrize(
    ("add", "words"),
    [
        ('echo "{\\"version\\": \\"1.0.0\\", \\"tap\\": \\"eth0\\", \\"mac\\": \\"$mac\\"}"', "tap is eth0, must be tap"),
        ('echo "{\\"version\\": \\"1.0.0\\", \\"tap\\": \\"$tap\\", \\"mac\\": \\"$mac\\"}"', "the pod has no tap device tap"),
        ('echo "{\\"version\\": \\"1.0.0\\", \\"tap\\": \\"$tap\\"}"', "mac is None, must be 52:54"),
        (
            'echo "{\\"version\\": \\"1.0.0\\", \\"tap\\": \\"$tap\\", \\"mac\\": \\"52:54:00:00:00:99\\"}"',
            "mac is 52:54:00:00:00:99, must be",
        ),
        (
            'echo "{\\"version\\": \\"1.0.0\\", \\"tap\\": \\"$tap\\", \\"mac\\": \\"$mac\\", \\"adresses\\": []}"',
            "'adresses', which is not a field",
        ),
        (
            'echo "{\\"version\\": \\"1.0.0\\", \\"tap\\": \\"$tap\\", \\"mac\\": \\"$mac\\", \\"addresses\\": [\\"300.1.1.1\\"]}"',
            "addresses: '300.1.1.1' is not an IP address",
        ),
        (
            'nsenter --net=$KUBEVIRT_NETNS ip link add "$tap" type dummy; '
            'echo "{\\"version\\": \\"1.0.0\\", \\"tap\\": \\"$tap\\", \\"mac\\": \\"$mac\\"}"',
            "the pod has no tap device tap",
        ),
        (
            'nsenter --net=$KUBEVIRT_NETNS ip tuntap add dev "$tap" mode tap user 0; '
            'echo "{\\"version\\": \\"1.0.0\\", \\"tap\\": \\"$tap\\", \\"mac\\": \\"$mac\\"}"',
            "belongs to user",
        ),
        (
            'nsenter --net=$KUBEVIRT_NETNS ip tuntap add dev "$tap" mode tap user 107 multi_queue; '
            'echo "{\\"version\\": \\"1.0.0\\", \\"tap\\": \\"$tap\\", \\"mac\\": \\"$mac\\"}"',
            "must be created without multi_queue",
        ),
        (
            'nsenter --net=$KUBEVIRT_NETNS ip tuntap add dev "$tap" mode tap user 107; '
            'echo "{\\"version\\": \\"1.0.0\\", \\"tap\\": \\"$tap\\", \\"mac\\": \\"$mac\\"}"',
            "is down",
        ),
    ],
    ids=["another tap", "no tap", "no MAC", "another MAC", "unknown member", "no address", "no tap's kind", "user", "queues", "down"],
)
async def test_a_plugin_that_lies_is_found_out(pod: Pod, liar: tuple[Path, setup.Networks], add: str, words: str) -> None:
    interface = {"name": "private", "type": "plugin", "plugin": "liar", "mac": MAC}
    tap = attachments.tap("private")
    script = f"#!/bin/sh\nif [ $KUBEVIRT_COMMAND = VERSION ]; then echo '{DESCRIPTION}'; exit; fi\ntap={tap} mac={MAC}\n{add}\n"
    program, networks = liar
    program.write_text(script)
    program.chmod(0o755)
    with pytest.raises(Failed, match=rf"^plugin liar \(ADD\) (returned a wrong result: |answered with ).*{words}"):
        await networks.prepare(a_vm({"name": "default"}, interface), "pod-1", pod.launcher)
    # In any order, the pod's own network exists: a running guest must keep its filters.
    assert "tap0" in {each["ifname"] for each in await namespaces.links(pod.launcher.network)}


async def test_interfaces_too_slow_together_are_a_failed_try(pod: Pod, theirs: Plugins, tmp_path: Path) -> None:
    """Each single call is in time. Otherwise the loop would end the pass without a failed try or a message."""
    taps = [attachments.tap(each) for each in ("one", "two", "three")]
    script = f"""#!/bin/sh
if [ $KUBEVIRT_COMMAND = VERSION ]; then echo '{DESCRIPTION}'; exit; fi
read -r line
for tap in {" ".join(taps)}; do case $line in *'"tap": "'$tap*) break;; esac; done
sleep 2
nsenter --net=$KUBEVIRT_NETNS ip tuntap add dev $tap mode tap user 107
nsenter --net=$KUBEVIRT_NETNS ip link set $tap up
echo "{{\\"version\\": \\"1.0.0\\", \\"tap\\": \\"$tap\\", \\"mac\\": \\"{MAC}\\"}}"
"""
    (tmp_path / "liar").write_text(script)
    (tmp_path / "liar").chmod(0o755)
    slow = [{"name": each, "type": "plugin", "plugin": "liar", "mac": MAC} for each in ("one", "two", "three")]
    with pytest.raises(TimedOut, match=r"^interface \w+: setting up all networks of the pod took longer than 4 s$"):
        await setup.Networks(theirs, prepare_seconds=4.0).prepare(a_vm(*slow), "pod-1", pod.launcher)


async def test_a_plugin_that_is_absent_is_told(pod: Pod) -> None:
    with pytest.raises(NotFound, match="plugin isolated is not enabled for network"):
        await setup.Networks().prepare(a_vm(INTERFACES["example"]), "pod-1", pod.launcher)
