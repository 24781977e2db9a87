"""The test bed leaves no mount behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.host

ROOT = Path(__file__).parents[3]
LOOK = (
    "import pathlib, sys; from tests.testbed import network; network._NAMESPACES = pathlib.Path(sys.argv[1]); print(network._is_mounted())"
)


@pytest.mark.parametrize("mount", [True, False])
def test_a_directory_mounted_over_itself_is_seen(tmp_path: Path, *, mount: bool) -> None:
    bind = f"mount --bind {tmp_path} {tmp_path} && " if mount else ""
    command = f'{bind}exec "$0" -c "$1" {tmp_path}'

    seen = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command, sys.executable, LOOK], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    assert seen.strip() == str(mount)


PODS = """
import json, os, subprocess, sys
from tests.testbed import layout, network, nodes

def run(*words, netns="", stdin="", **variables):
    inside = ["ip", "netns", "exec", netns] if netns else []
    done = subprocess.run([*inside, *words], input=stdin, capture_output=True, text=True, env={**os.environ, **variables})
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout

def reaches(address, seconds=5, netns=""):
    inside = ["ip", "netns", "exec", netns] if netns else []
    return subprocess.run([*inside, "busybox", "ping", "-c", "1", "-W", str(seconds), address], capture_output=True).returncode == 0

network.up()
network.up()  # finds everything there
pods, told = {}, {}
for node in layout.NODES:
    for number in (1, 2):
        name = f"{node.name}-pod{number}"
        run("ip", "netns", "add", name)
        run("ip", "-n", name, "link", "set", "lo", "up")
        configuration = nodes.cni_configuration(node)
        plugin = configuration["plugins"][0] | {"cniVersion": configuration["cniVersion"], "name": configuration["name"]}
        plugin["ipam"]["dataDir"] = os.environ["KUBEVIRT_STATE"] + "/cni-" + node.name
        variables = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": name, "CNI_NETNS": f"/run/netns/{name}", "CNI_IFNAME": "eth0"}
        variables |= {"CNI_PATH": nodes.CNI_PLUGINS}
        made = json.loads(run(f"{nodes.CNI_PLUGINS}/bridge", netns=node.name, stdin=json.dumps(plugin), **variables))
        pods[name] = [each["address"].partition("/")[0] for each in made["ips"]]
for name, addresses in pods.items():
    others = [layout.CONTROL_PLANE_ADDRESS, layout.CONTROL_PLANE_ADDRESS6]
    others += [each for other in pods if other != name for each in pods[other]]
    told[name] = {"addresses": addresses, "unreached": [each for each in others if not reaches(each, netns=name)]}
told["outside"] = [each for each in ("192.0.2.1", "2001:db8::1") if reaches(each, seconds=1, netns=name)]
told["root"] = [each for addresses in pods.values() for each in addresses if not reaches(each)]
for name in pods:
    run("ip", "netns", "delete", name)
network.down()
told["left"] = network.leftovers()
print(json.dumps(told))
"""


def test_pods_of_both_nodes_reach_only_each_other(tmp_path: Path) -> None:
    prepare = "mount --make-rprivate / && mount -t tmpfs tmpfs /run && mkdir /run/netns && mount -t sysfs sysfs /sys && ip link set lo up"
    done = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-c", f'{prepare} && exec "$0" -c "$1"', sys.executable, PODS],
        cwd=ROOT,
        env={**os.environ, "KUBEVIRT_STATE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])

    assert [told.pop(each) for each in ("root", "outside", "left")] == [[]] * 3
    for name, pod in told.items():
        number = name.removeprefix("node").partition("-")[0]
        ipv4, ipv6 = pod.pop("addresses")
        assert (ipv4.rpartition(".")[0], ipv6.rpartition("::")[0]) == (f"10.244.{number}", f"fd00:10:244:{number}")
        assert pod == {"unreached": []}, name
