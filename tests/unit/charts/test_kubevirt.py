from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from apiserver.apis.core import resources as core
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt.places import names, resources, streams
from apiserver.apis.virt.spec import password
from apiserver.endpoints.verbs.streamlimits import StreamLimits
from apiserver.kubectl import verbs as plugin
from apiserver.registry.virt.reads import DomainXML, GuestInfo, Screenshot
from apiserver.registry.virt.verbs import VERBS
from apiserver.server import options
from apiserver.server.connections import ConnectionOptions
from controller.manager import options as controller_options
from controller.reconcilers.certificates.consumers import API_SERVICE, API_SERVICE_NAMES, ETCD, STATEFUL_SETS
from controller.reconcilers.certificates.rotate_certificates import authorities
from controller.reconcilers.settings import WorkloadUpdate
from handler import options as handler_options
from handler.streams.limits import Limits
from tests.fakes import chart, rbac
from tests.testbed import build
from tests.unit.pods import unbounded

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "kubevirt"
READS = frozenset({GuestInfo.name, DomainXML.name})
"""Subresources that viewers of a VM may read."""
GOLDEN = Path(__file__).parent / "golden.yaml"
NODE = "etcd.storage.nodeDisk.node=node1"
CLASS = "etcd.storage.storageClassName=fast"


@cache
def program() -> str:
    return os.environ.get("HELM") or str(build.program("helm"))


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program(), *arguments], capture_output=True, text=True, check=False)


@cache
def render(*settings: str) -> str:
    flags = [flag for each in settings for flag in ("--set", each)]
    done = helm("template", "kubevirt", str(CHART), "--namespace", "kubevirt", *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def objects(*settings: str) -> list[dict[str, Any]]:
    return chart.parsed(render(*settings))


def one(kind: str, name: str, *settings: str) -> dict[str, Any]:
    found = [each for each in objects(*(settings or (NODE,))) if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    assert len(found) == 1, f"{kind} {name}: {len(found)}"
    return found[0]


def pod_templates(*settings: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for each in objects(*settings):
        if each["kind"] in {"Deployment", "DaemonSet", "StatefulSet", "Job"}:
            yield each["metadata"]["name"], each["spec"]["template"]["spec"]


def test_chart_lints() -> None:
    done = helm("lint", "--strict", str(CHART), "--set", NODE)

    assert done.returncode == 0, done.stdout


def test_chart_renders_the_reviewed_manifests() -> None:
    """To write the file again: GOLDEN=write pytest tests/unit/charts."""
    rendered = render(NODE)
    if os.environ.get("GOLDEN") == "write":
        GOLDEN.write_text(rendered, encoding="utf-8")

    assert rendered == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("imgae.tag=1", "imgae"),
        ("virtApi.replica=2", "replica"),
        ("acceleration=fast", "acceleration"),
        ("virtApi.replicas=0", "replicas"),
        ("certificates.spread=ten", "spread"),
        ("certificates.leafLifetime=29m", "leafLifetime must be at least three times spread"),
        ("certificates.leafLifetime=24h,certificates.authorityLifetime=71h", "a third of authorityLifetime"),
        ("certificates.nodeLifetime=9m59s", "nodeLifetime must be at least"),
        ("certificates.spread=0s,certificates.nodeLifetime=0s", "neither may be 0"),
        ("certificates.spread=0s,certificates.leafLifetime=0s,certificates.authorityLifetime=0s", "neither may be 0"),
        ("certificates.spread=10m0.5s", "spread"),
        ("virtApi.resources.limits.memory=lots", "memory"),
        ("etcd.storage.size=4", "size"),
        ("virtApi.streams.perUser=-1", "perUser"),
        ("virtHandler.streams.perUser=1", "perUser"),
        ("image.registry=registry.example.com/", "registry"),
        ("workloadUpdate.strategy=Restart", "strategy"),
        ("workloadUpdate.batchSize=0", "batchSize"),
        ("workloadUpdate.batchInterval=soon", "batchInterval"),
    ],
)
def test_a_typo_is_refused_and_named(setting: str, named: str) -> None:
    done = helm("template", "kubevirt", str(CHART), "--set", NODE, "--set", setting)

    assert done.returncode != 0
    assert named in done.stderr


@pytest.mark.parametrize(
    "setting",
    [
        "certificates.leafLifetime=30m,certificates.nodeLifetime=10m",
        "certificates.leafLifetime=24h,certificates.authorityLifetime=72h",
        "virtApi.resources.limits.memory=1.5Gi,virtApi.resources.limits.cpu=100m,virtApi.resources.requests.cpu=2",
        "virtApi.resources.limits.memory=.5Gi,virtApi.resources.requests.cpu=50000u",
    ],
)
def test_values_at_their_bounds_are_taken(setting: str) -> None:
    done = helm("template", "kubevirt", str(CHART), "--set", NODE, "--set", setting)
    assert done.returncode == 0, done.stderr


def test_every_value_is_in_the_schema_and_explained() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    assert set(values) == set(schema["properties"]) - {"global"}


def test_pages_of_other_hosts_are_named_to_virt_api_one_by_one() -> None:
    def flags(*settings: str) -> list[str]:
        arguments = one("Deployment", "virt-api", NODE, *settings)["spec"]["template"]["spec"]["containers"][0]["args"]
        return [each for each in arguments if each.startswith("--cors")]

    named = ("^https://console\\.example$", "//a\\.example(:|$)")
    settings = [f"virtApi.corsAllowedOrigins[{place}]={each}".replace("\\", "\\\\") for place, each in enumerate(named)]
    assert flags() == []
    assert flags(*settings) == [f"--cors-allowed-origins={','.join(named)}"]
    given = options.parse(["--etcd-servers=x", *flags(*settings)])
    assert [each.pattern for each in given.cors_allowed_origins] == list(named)
    for wrong in (".*", "console.example$"):
        done = helm("template", "kubevirt", str(CHART), "--set", NODE, "--set", f"virtApi.corsAllowedOrigins[0]={wrong}")
        assert "corsAllowedOrigins" in done.stderr


def test_missing_etcd_disk_explains_what_to_set() -> None:
    done = helm("template", "kubevirt", str(CHART))

    assert done.returncode != 0
    assert "etcd.storage.storageClassName or etcd.storage.nodeDisk.node" in done.stderr
    assert "Use --dry-run=server" in done.stderr


def test_etcds_data_is_on_a_disk_that_stays() -> None:
    volume = one("PersistentVolume", "kubevirt-etcd-0")
    claim = one("StatefulSet", ETCD)["spec"]["volumeClaimTemplates"][0]

    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert volume["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert volume["spec"]["hostPath"]["type"] == "Directory"
    assert volume["spec"]["storageClassName"] == claim["spec"]["storageClassName"]
    assert volume["spec"]["claimRef"] | {"name": "data-kubevirt-etcd-0", "uid": None} == volume["spec"]["claimRef"]
    by_class = one("StatefulSet", ETCD, CLASS)["spec"]
    assert by_class["volumeClaimTemplates"][0]["spec"]["storageClassName"] == "fast"
    assert by_class["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert not [each for each in objects(CLASS) if each["kind"] == "PersistentVolume"]
    for pod in (one("StatefulSet", ETCD)["spec"]["template"]["spec"], by_class["template"]["spec"]):
        assert not [each for each in pod["volumes"] if "emptyDir" in each]


def test_ca_bundle_of_the_api_service_is_left_to_virt_controller() -> None:
    services = {each["metadata"]["name"]: each["spec"] for each in objects(NODE) if each["kind"] == "APIService"}
    assert services.keys() == set(API_SERVICE_NAMES)
    for spec in services.values():
        assert not spec.keys() & {"caBundle", "insecureSkipTLSVerify"}


@pytest.mark.parametrize("settings", [(NODE,), (CLASS, "networkPolicies.enabled=true", "image.pullSecrets={regcred}")])
def test_every_pod_but_the_handlers_is_restricted(settings: tuple[str, ...]) -> None:
    """Pod Security ``restricted``; the job for etcd's directory on a node needs root, like virt-handler."""
    seen = 0
    for name, pod in pod_templates(*settings):
        if name in {"virt-handler", "kubevirt-etcd-directory"}:
            continue
        seen += 1
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostPID", "hostIPC", "hostNetwork"} & set(pod), name
        assert all(set(volume) - {"name"} <= {"secret", "emptyDir", "configMap", "projected"} for volume in pod.get("volumes", ())), name
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            assert container["securityContext"]["allowPrivilegeEscalation"] is False, name
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
            assert container["securityContext"]["readOnlyRootFilesystem"] is True, name
            assert not [port for port in container.get("ports", ()) if "hostPort" in port], name
    assert seen == 4


@pytest.mark.parametrize("settings", [(NODE,), (CLASS, "networkPolicies.enabled=true", "image.pullSecrets={regcred}")])
def test_no_container_can_fill_its_node(settings: tuple[str, ...]) -> None:
    found = {name: unbounded(pod) for name, pod in pod_templates(*settings)}

    assert {"virt-api", "virt-controller", "virt-handler", ETCD, "kubevirt-uninstall"} <= set(found)
    assert {name: each for name, each in found.items() if each} == {}


def test_the_connections_of_the_values_are_those_of_the_flag() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values["virtApi"]["maxConnections"] == ConnectionOptions().max_connections
    (virt_api,) = one("Deployment", "virt-api", "virtApi.maxConnections=16384", NODE)["spec"]["template"]["spec"]["containers"]
    assert "--max-connections=16384" in virt_api["args"]


def test_the_streams_of_the_values_are_those_of_the_flags() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    api, node = values["virtApi"]["streams"], values["virtHandler"]["streams"]

    assert StreamLimits(api["max"], api["perUser"], api["perUserAndMachine"]) == StreamLimits()
    assert Limits(node["max"], node["perMachine"], node["perMachineAndUser"]) == Limits()
    changed = ("virtApi.streams.perUser=5", "virtHandler.streams.perMachine=2", NODE)
    (virt_api,) = one("Deployment", "virt-api", *changed)["spec"]["template"]["spec"]["containers"]
    (handler,) = one("DaemonSet", "virt-handler", *changed)["spec"]["template"]["spec"]["containers"]
    assert "--max-streams-per-user=5" in virt_api["args"]
    assert "--max-streams-per-machine=2" in handler["args"]


def test_vsock_is_for_the_administrator_to_allow() -> None:
    def flags(*settings: str) -> list[list[str]]:
        found = (one("Deployment", "virt-api", NODE, *settings), one("DaemonSet", "virt-handler", NODE, *settings))
        pods = [each["spec"]["template"]["spec"]["containers"] for each in found]
        return [[flag for flag in container["args"] if "vsock" in flag] for (container,) in pods]

    assert flags() == [[], []]
    api, handler = flags("vsock.enabled=true")
    assert options.parse(["--etcd-servers=x", *api]).allow_vsock
    assert handler_options.parse(["--node-name=n", "--pod-ip=10.0.0.1", *handler]).allow_vsock
    assert not options.parse(["--etcd-servers=x"]).allow_vsock
    assert not handler_options.parse(["--node-name=n", "--pod-ip=10.0.0.1"]).allow_vsock


def test_macvtaps_are_for_the_administrator_to_allow() -> None:
    def flags(*settings: str) -> list[list[str]]:
        found = (one("Deployment", "virt-api", NODE, *settings), one("DaemonSet", "virt-handler", NODE, *settings))
        pods = [each["spec"]["template"]["spec"]["containers"] for each in found]
        return [[flag for flag in container["args"] if "macvtap" in flag] for (container,) in pods]

    assert flags() == [[], []]
    api, handler = flags("macvtap.enabled=true")
    assert options.parse(["--etcd-servers=x", *api]).allow_macvtap
    assert handler_options.parse(["--node-name=n", "--pod-ip=10.0.0.1", *handler]).allow_macvtap
    assert not options.parse(["--etcd-servers=x"]).allow_macvtap
    assert not handler_options.parse(["--node-name=n", "--pod-ip=10.0.0.1"]).allow_macvtap


def test_plugins_are_for_the_administrator_to_name() -> None:
    def pods(*settings: str) -> list[Any]:
        found = (one("Deployment", "virt-api", NODE, *settings), one("DaemonSet", "virt-handler", NODE, *settings))
        return [each["spec"]["template"]["spec"] for each in found]

    bare = pods()
    assert "plugin" not in json.dumps(bare).replace("device-plugins", "").replace("enable-admission-plugins", "")
    api, handler = pods("plugins.network={isolated,vlan}", "plugins.storage={images,pool}", "plugins.directory=/opt/plugins")
    (api_container,), (container,) = api["containers"], handler["containers"]
    taken = options.parse(["--etcd-servers=x", *(flag for flag in api_container["args"] if "plugins=" in flag)])
    assert (taken.network_plugins, taken.storage_plugins) == (("isolated", "vlan"), ("images", "pool"))
    flags = [flag for flag in container["args"] if "plugin" in flag]
    read = handler_options.parse(["--node-name=n", "--pod-ip=10.0.0.1", *flags])
    assert (read.network_plugins, read.storage_plugins) == (("isolated", "vlan"), ("images", "pool"))
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "plugins")
    assert mount == {"name": "plugins", "mountPath": str(read.plugin_directory), "readOnly": True}
    (volume,) = (each for each in handler["volumes"] if each["name"] == "plugins")
    assert volume["hostPath"] == {"path": "/opt/plugins", "type": "DirectoryOrCreate"}


def test_host_disk_settings_reach_both_components() -> None:
    def arguments(kind: str, name: str, *settings: str) -> list[str]:
        (container,) = one(kind, name, NODE, *settings)["spec"]["template"]["spec"]["containers"]
        return [each for each in container["args"] if "host-disks" in each]

    assert arguments("Deployment", "virt-api") == arguments("DaemonSet", "virt-handler") == []
    named = ("hostDisks.paths={/var/vms/{namespace\\},/srv/vms}", "hostDisks.maxCreated=5Gi")
    taken = options.parse(["--etcd-servers=x", *arguments("Deployment", "virt-api", *named)])
    read = handler_options.parse(["--node-name=n", "--pod-ip=10.0.0.1", *arguments("DaemonSet", "virt-handler", *named)])
    assert taken.host_disks == read.host_disks == ("/var/vms/{namespace}", "/srv/vms")
    assert read.host_disks_max_created == 5 << 30
    assert handler_options.parse(["--node-name=n", "--pod-ip=10.0.0.1"]).host_disks_max_created == 100 << 30


def test_memory_stays_off_nodes_disks_by_default() -> None:
    def handler(*settings: str) -> tuple[handler_options.Options, dict[str, Any], list[Any]]:
        pod = one("DaemonSet", "virt-handler", NODE, *settings)["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        words = [each for each in container["args"] if "managed-save" in each]
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        volumes = [each["hostPath"] for each in pod["volumes"] if each["name"] == "managed-save"]
        return handler_options.parse(["--node-name=n", "--pod-ip=10.0.0.1", *words]), mounts, volumes

    off, mounts, _ = handler()
    assert off.managed_save_directory is None
    assert "managed-save" not in mounts
    on, mounts, volumes = handler("managedSave.nodeDisk.enabled=true", "managedSave.nodeDisk.directory=/srv/memory")
    assert (str(on.managed_save_directory), on.managed_save_keep_free_percent) == ("/srv/memory", 15)
    assert mounts["managed-save"] == "/srv/memory"
    assert volumes == [{"path": "/srv/memory", "type": "DirectoryOrCreate"}]


def pattern_of(*path: str) -> re.Pattern[str]:
    found = json.loads((CHART / "values.schema.json").read_text())
    for each in path:
        found = found["properties"][each]
    return re.compile(found["pattern"])


def is_read(parse: Callable[[list[str]], object], *flags: str) -> bool:
    try:
        parse(list(flags))
    except SystemExit:
        return False
    return True


SUFFIXES = ("", "k", "K", "m", "M", "G", "T", "P", "E", "Ki", "ki", "Mi", "Gi", "Ti", "Pi", "e3", "B")
EDGES = sorted({abs(base**power + by) for base in (2, 10) for power in range(20) for by in (-1, 0, 1)})
"""Numbers at which a pattern by digits, or a bound in powers of 1024, changes its result."""
AMOUNTS = [f"{sign}{number}{suffix}" for number in EDGES for suffix in SUFFIXES for sign in ("", "-", "0", "1.")]


def test_the_room_for_files_of_nodes_is_a_quantity() -> None:
    admitted = pattern_of("hostDisks", "maxCreated")
    taken = [each for each in AMOUNTS if admitted.fullmatch(each)]
    assert {"0", "100k", "100Ki", "100M", "100Gi", "1P", "1Pi"} <= {*taken}
    read = handler_options.parse
    assert [each for each in taken if not is_read(read, "--node-name=n", "--pod-ip=::1", f"--host-disks-max-created={each}")] == []
    assert [each for each in ("100K", "100ki", "", "k", "-1", "1.5Gi", "1Gi ") if admitted.fullmatch(each)] == []


def test_migration_bandwidth_pattern_matches_virt_controller() -> None:
    """It also refuses a few valid amounts near the bounds."""
    admitted = pattern_of("migrations", "bandwidth")
    taken = [each for each in AMOUNTS if admitted.fullmatch(each)]
    assert {"0", "8192Ki", "1Mi", "100000Mi", "10M", "1G", "1Gi", "100Gi", "1Ti"} <= {*taken}
    read = controller_options.parse
    assert [each for each in taken if not is_read(read, "--launcher-image=x", f"--migration-bandwidth={each}")] == []
    assert [each for each in ("500Ki", "2Ti", "5", "1M", "1025Gi", "1e9", "1048575", "") if admitted.fullmatch(each)] == []
    assert admitted.fullmatch(yaml.safe_load((CHART / "values.yaml").read_text())["migrations"]["bandwidth"])


def test_every_container_says_what_it_needs_and_can_be_probed() -> None:
    for name, pod in pod_templates(NODE):
        for container in pod["containers"]:
            assert container["image"].startswith("localhost/kubevirt/"), name
            if name in {"kubevirt-uninstall", "kubevirt-etcd-directory"}:
                continue
            assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container), name
            assert container["resources"]["limits"]["memory"], name
            named = {port["name"] for port in container["ports"]}
            asked = [container[probe] for probe in ("livenessProbe", "readinessProbe")]
            # etcd serves its health on loopback only: elsewhere it requires a client certificate.
            assert name == ETCD or {probe["httpGet"]["port"] for probe in asked} <= named, name
            assert name != ETCD or all("127.0.0.1:2381" in probe["exec"]["command"][-1] for probe in asked)


def test_secrets_that_pods_mount_are_those_that_are_made() -> None:
    made = {leaf.secret for authority in authorities("kubevirt") for leaf in authority.leaves}
    mounted = {
        volume["secret"]["secretName"] for _, pod in pod_templates(NODE) for volume in pod.get("volumes", ()) if "secret" in volume
    }  # fmt: skip

    assert mounted == made


def test_certificates_name_the_services_that_are_dialled() -> None:
    named = {name for authority in authorities("kubevirt") for leaf in authority.leaves for name in leaf.profile.dns_names}
    services = {each["metadata"]["name"] for each in objects(NODE) if each["kind"] == "Service"}

    assert {"virt-api.kubevirt.svc", "virt-controller.kubevirt.svc", f"{ETCD}.kubevirt.svc", f"*.{ETCD}-peers.kubevirt.svc"} <= named
    assert services == {"virt-api", "virt-controller", ETCD, f"{ETCD}-peers"}


def allows(role: dict[str, Any], group: str, resource: str, verb: str, name: str = "") -> bool:
    return any(
        group in rule["apiGroups"]
        and resource in rule["resources"]
        and verb in rule["verbs"]
        and ("resourceNames" not in rule or name in rule["resourceNames"])
        for rule in role["rules"]
    )


def test_virt_controller_rotates_its_secrets_and_reads_no_other() -> None:
    role, everywhere = one("Role", "virt-controller"), one("ClusterRole", "kubevirt.io:virt-controller")
    secrets = [name for each in authorities("kubevirt") for name in (each.secret, *(leaf.secret for leaf in each.leaves))]

    for name in secrets:
        for verb in ("get", "update", "delete"):
            assert allows(role, "", "secrets", verb, name)
    assert allows(role, "", "secrets", "create")
    assert not allows(role, "", "secrets", "get", "somebody-elses")
    assert not allows(role, "", "secrets", "list")
    assert not [rule for rule in everywhere["rules"] if "secrets" in rule["resources"]]
    assert allows(role, STATEFUL_SETS.group, STATEFUL_SETS.plural, "patch", ETCD)
    assert allows(everywhere, core.API_SERVICES.group, core.API_SERVICES.plural, "patch", API_SERVICE)
    assert not allows(everywhere, core.API_SERVICES.group, core.API_SERVICES.plural, "patch", "v1.apps")


SCOPES = {"cluster": "", "installation": "kubevirt", "node leases": "kubevirt-node-lease"}
"""Namespaces of rights, by the word for them in rbac.md."""


@pytest.mark.parametrize(
    ("account", "package"), [("virt-controller", "controller"), ("virt-api", "apiserver"), ("virt-handler", "handler")]
)
def test_a_process_may_do_what_is_explained_and_nothing_else(account: str, package: str) -> None:
    """Component tests run the processes with the chart's rights, so the rights also suffice."""
    explained = set()
    for line in (ROOT / package / "rbac.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.replace("`", "").removeprefix("|").removesuffix("|").split("|")]
        if len(cells) == 6 and cells[4] in SCOPES:
            group, resource, given, verbs, scope, _ = cells
            namespace = SCOPES[scope]
            explained |= {(group, resource, name, verb, namespace) for name in given.split(", ") for verb in verbs.split(", ")}

    assert set(rbac.permissions(account)) == explained


def test_virt_handler_and_virt_api_may_do_little() -> None:
    handler = {(resource, verb) for _, resource, _, verb, _ in rbac.permissions("virt-handler")}

    assert {pair for pair in handler if pair[1] not in {"get", "list", "watch"}} == {
        ("virtualmachines/status", "update"),
        ("migrations/status", "update"),
        ("events", "create"),
        ("events", "patch"),
        ("leases", "create"),
        ("leases", "patch"),
        ("certificatesigningrequests", "create"),
        ("nodes", "patch"),
    }
    api = {(resource, verb) for _, resource, _, verb, _ in rbac.permissions("virt-api")}
    assert {pair for pair in api if pair[1] not in {"get", "list", "watch"}} == {("resourcequotas/status", "update")}


def test_no_role_has_wildcards_and_one_role_has_secrets() -> None:
    for each in objects(NODE):
        if each["kind"] not in {"Role", "ClusterRole"}:
            continue
        for rule in each["rules"]:
            if "nonResourceURLs" in rule:
                assert rule == {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
                continue
            assert "*" not in rule["apiGroups"] + rule["resources"] + rule["verbs"], each["metadata"]["name"]
            assert "secrets" not in rule["resources"] or each["metadata"]["name"] == "virt-controller"


def granted(role: str) -> set[tuple[str, str]]:
    rules = one("ClusterRole", f"kubevirt.io:{role}")["rules"]
    assert {group for rule in rules for group in rule["apiGroups"]} == {names.GROUP}
    assert not [rule for rule in rules if "resourceNames" in rule]
    return {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


def explained(column: int) -> set[tuple[str, str]]:
    _, _, table = (ROOT / "docs" / "security.md").read_text(encoding="utf-8").partition("| resource | `kubevirt.io:view` |")
    found = set()
    for line in table.partition("\n\n")[0].splitlines()[2:]:
        cells = [cell.strip() for cell in line.replace("`", "").removeprefix("|").removesuffix("|").split("|")]
        found |= {(resource, verb) for resource in cells[0].split(", ") for verb in cells[column].split(", ") if verb}
    return found


def test_user_roles_grant_exactly_what_is_documented() -> None:
    assert granted("view") == explained(1)
    assert granted("edit") == granted("admin") == explained(2)


def test_view_role_only_reads_and_opens_no_stream() -> None:
    every = {*get_args(streams.Stream), *VERBS, password.NAME}
    view, edit = granted("view"), granted("edit")
    typed = set(get_args(streams.Stream)) - {"log"}

    assert {verb for _, verb in view} == {"get", "list", "watch"}
    assert {resource.partition("/")[2] for resource, _ in view} == {"", "status", "scale", *READS}
    assert {(f"virtualmachines/{stream}", verb) for stream in typed for verb in ("get", "create")} <= edit
    assert {resource.partition("/")[2] for resource, _ in edit} == {"", "status", "scale", *READS, Screenshot.name, *every}
    assert {verb for resource, verb in edit if resource.endswith((f"/{Screenshot.name}", "/log"))} == {"get"}
    assert view < edit


@pytest.mark.parametrize("role", ["view", "edit"])
def test_every_kind_of_a_namespace_is_granted_to_people(role: str) -> None:
    kinds = [each for each in vars(resources).values() if isinstance(each, Resource) and each.group == names.GROUP and each.namespaced]

    assert {resource for resource, _ in granted(role) if "/" not in resource} >= {each.plural for each in kinds} != set()


def test_the_plugin_has_every_verb() -> None:
    assert set(plugin.VERBS) == set(VERBS)


def test_the_roles_for_people_are_part_of_kubernetes_own() -> None:
    def parts(role: str, *settings: str) -> set[str]:
        prefix = "rbac.authorization.k8s.io/aggregate-to-"
        labels = one("ClusterRole", f"kubevirt.io:{role}", NODE, *settings)["metadata"]["labels"]
        return {label.removeprefix(prefix) for label, value in labels.items() if label.startswith(prefix) and value == "true"}

    assert (parts("view"), parts("edit"), parts("admin")) == ({"view", "edit", "admin"}, {"edit", "admin"}, {"admin"})
    for role in ("view", "edit", "admin"):
        assert parts(role, "rbac.aggregateToDefaultRoles=false") == set()


def test_ports_are_those_that_the_parts_agreed_on() -> None:
    pod = one("DaemonSet", "virt-handler")["spec"]["template"]["spec"]
    ports = {port["name"]: port["containerPort"] for port in pod["containers"][0]["ports"]}

    assert ports == {"streams": streams.HANDLER_PORT, "relay": streams.RELAY_PORT, "health": 8080, "metrics": 8443}
    labels = one("DaemonSet", "virt-handler")["spec"]["template"]["metadata"]["labels"]
    assert labels[names.COMPONENT_LABEL] == names.HANDLER


def test_guests_are_shut_down_before_anything_is_removed() -> None:
    job = one("Job", "kubevirt-uninstall")

    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    command = job["spec"]["template"]["spec"]["containers"][0]
    assert command["command"] == ["python3", "-m", "controller.manager.uninstall"]
    assert job["spec"]["activeDeadlineSeconds"] > 300


def test_quota_flag_and_right_come_together() -> None:
    for value, expected in (("true", True), ("false", False)):
        settings = (NODE, f"admission.resourceQuota={value}")
        arguments = one("Deployment", "virt-api", *settings)["spec"]["template"]["spec"]["containers"][0]["args"]
        rules = one("ClusterRole", "kubevirt.io:virt-api", *settings)["rules"]
        assert ("--enable-admission-plugins=ResourceQuota" in arguments) is expected
        assert any(each["resources"] == ["resourcequotas/status"] for each in rules) is expected
        policies = [each["metadata"]["name"] for each in objects(*settings) if each["kind"] == "ValidatingAdmissionPolicy"]
        assert ("virt-api-quotas.kubevirt.io" in policies) is expected


def test_quotas_are_enforced_by_default() -> None:
    assert "--enable-admission-plugins=ResourceQuota" in one("Deployment", "virt-api")["spec"]["template"]["spec"]["containers"][0]["args"]


def test_encryption_secret_is_mounted_and_reloaded() -> None:
    plain = one("Deployment", "virt-api")["spec"]["template"]["spec"]
    assert not [each for each in plain["containers"][0]["args"] if "encryption" in each]
    spec = one("Deployment", "virt-api", NODE, "etcd.encryptionSecret=keys")["spec"]["template"]["spec"]
    volume = next(each for each in spec["volumes"] if each.get("secret", {}).get("secretName") == "keys")
    (mount,) = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == volume["name"]]
    assert f"--encryption-provider-config={mount['mountPath']}/encryption.yaml" in spec["containers"][0]["args"]
    assert "--encryption-provider-config-automatic-reload" in spec["containers"][0]["args"]


def test_image_digest_is_used_wherever_the_image_is_named() -> None:
    digest = "sha256:" + "a" * 64
    settings = (NODE, f"image.digests.virt-launcher={digest}", f"image.digests.etcd={digest}")

    images = {container["image"] for _, spec in pod_templates(*settings) for container in spec["containers"]}

    assert f"localhost/kubevirt/etcd@{digest}" in images
    assert "localhost/kubevirt/virt-api:dev" in images
    assert not any(image.startswith("localhost/kubevirt/etcd:") for image in images)
    arguments = one("Deployment", "virt-controller", *settings)["spec"]["template"]["spec"]["containers"][0]["args"]
    assert f"--launcher-image=localhost/kubevirt/virt-launcher@{digest}" in arguments


@pytest.mark.parametrize("wrong", ["image.digests.virt-api=latest", "image.digests.virtapi=sha256:" + "a" * 64])
def test_a_digest_of_no_image_or_of_another_form_is_refused(wrong: str) -> None:
    assert helm("template", "kubevirt", str(CHART), "--set", NODE, "--set", wrong).returncode != 0


COMPONENTS = ("virt-api", "virt-controller", "virt-handler", "etcd")


def reaches(source: dict[str, str] | None, target: str, port: int, *settings: str) -> bool:
    """Return whether the rendered NetworkPolicies let ``source`` connect to a port of a pod of the release.

    ``source`` is the labels of a pod in the release's namespace, ``{}`` for a pod of another namespace, None for an address outside pods.
    """
    pods = {template["metadata"]["labels"].get("kubevirt.io"): template["metadata"]["labels"] for template in templates(*settings)}
    labels = pods[target]
    policies = [each for each in objects(*settings) if each["kind"] == "NetworkPolicy"]
    chosen = [each["spec"] for each in policies if each["spec"]["podSelector"]["matchLabels"].items() <= labels.items()]
    return not chosen or any(matches(rule, source, port) for spec in chosen for rule in spec.get("ingress") or ())


def templates(*settings: str) -> list[dict[str, Any]]:
    return [each["spec"]["template"] for each in objects(*settings) if each["kind"] in {"Deployment", "DaemonSet", "StatefulSet"}]


def matches(rule: dict[str, Any], source: dict[str, str] | None, port: int) -> bool:
    if port not in {each["port"] for each in rule["ports"]}:
        return False
    return "from" not in rule or any(is_peer(peer, source) for peer in rule["from"])


def is_peer(peer: dict[str, Any], source: dict[str, str] | None) -> bool:
    if source is None:
        return False
    if "namespaceSelector" in peer:
        assert peer == {"namespaceSelector": {}}
        return True
    wanted = peer["podSelector"]["matchLabels"]
    return bool(source) and wanted.items() <= source.items()


PORTS = (2379, 2380, 2381, 8080, 8443, 8444, 8445)
OPEN = {
    ("virt-api", "etcd", 2379),
    ("etcd", "etcd", 2379),
    ("etcd", "etcd", 2380),
    ("virt-api", "virt-handler", 8444),
    ("virt-handler", "virt-handler", 8445),
}


def test_nothing_reaches_a_port_of_ours_but_who_needs_it() -> None:
    sources: dict[str, dict[str, str] | None] = {each: {"kubevirt.io": each} for each in COMPONENTS}
    sources |= {"a guest": {"kubevirt.io": "virt-launcher"}, "another namespace": {}, "no pod": None}
    found = {
        (name, target, port)
        for name, labels in sources.items()
        for target in COMPONENTS
        for port in PORTS
        if reaches(labels, target, port, NODE)
    }

    api = {(name, "virt-api", 8443) for name in sources}
    metrics = {(name, target, 8443) for name in sources if name != "no pod" for target in ("virt-controller", "virt-handler")}
    assert found == OPEN | api | metrics


def test_the_pod_proxy_reaches_metrics_only_without_peers() -> None:
    """docs/operating/servers.md, "Metrics": the proxy connects from an address of no pod."""
    for component in ("virt-controller", "virt-handler"):
        assert not reaches(None, component, 8443, NODE)
        assert reaches(None, component, 8443, NODE, "networkPolicies.metricsFrom=null")


def test_values_narrow_who_reaches_api_and_metrics() -> None:
    narrow = (
        NODE,
        "networkPolicies.apiFrom[0].ipBlock.cidr=192.0.2.0/28",
        "networkPolicies.metricsFrom[0].podSelector.matchLabels.app=prometheus",
    )
    policies = {
        each["metadata"]["name"]: each["spec"]["ingress"]
        for each in objects(*narrow)
        if each["kind"] == "NetworkPolicy" and "ingress" in each["spec"]
    }

    assert policies["virt-api"][0]["from"] == [{"ipBlock": {"cidr": "192.0.2.0/28"}}]
    assert {"podSelector": {"matchLabels": {"app": "prometheus"}}} in policies["virt-controller"][0]["from"]
    assert not [each for each in objects(NODE, "networkPolicies.enabled=false") if each["kind"] == "NetworkPolicy"]


def test_every_pod_of_the_release_is_isolated_by_the_policy() -> None:
    policy = one("NetworkPolicy", "kubevirt")["spec"]

    assert policy["policyTypes"] == ["Ingress"]
    assert "ingress" not in policy
    for each in objects(NODE):
        if each["kind"] in {"Deployment", "DaemonSet", "StatefulSet", "Job"}:
            assert policy["podSelector"]["matchLabels"].items() <= each["spec"]["template"]["metadata"]["labels"].items()


def test_the_namespace_is_labelled_unless_the_installer_does_it() -> None:
    for labelled, settings in ((True, (NODE,)), (False, (NODE, "podSecurity.labelNamespace=false"))):
        container = one("Deployment", "virt-controller", *settings)["spec"]["template"]["spec"]["containers"][0]
        rules = one("ClusterRole", "kubevirt.io:virt-controller", *settings)["rules"]
        assert ("--label-namespace" in container["args"]) == labelled
        granted = [rule for rule in rules if rule["resources"] == ["namespaces"]]
        reads = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}
        assert granted == [reads, *([{**reads, "resourceNames": ["kubevirt"], "verbs": ["get", "patch"]}] if labelled else [])]


def test_allowed_launcher_images_include_webhook_results() -> None:
    digest = f"sha256:{'a' * 64}"
    settings = (NODE, f"image.digests.virt-launcher={digest}", "admission.launcherImages={mirror.example/virt-launcher:v1}")
    arguments = one("Deployment", "virt-controller", *settings)["spec"]["template"]["spec"]["containers"][0]["args"]
    (image,) = [each.removeprefix("--launcher-image=") for each in arguments if each.startswith("--launcher-image=")]
    assert image.endswith(f"@{digest}")
    spec = one("ValidatingAdmissionPolicy", "virt-controller-pods.kubevirt.io", *settings)["spec"]
    (rule,) = [each for each in spec["validations"] if "each.image in" in each["expression"]]
    assert f'each.image in ["{image}","mirror.example/virt-launcher:v1"]' in rule["expression"]
    assert spec["failurePolicy"] == "Fail"
    binding = one("ValidatingAdmissionPolicyBinding", "virt-controller-pods.kubevirt.io", *settings)["spec"]
    assert binding == {"policyName": "virt-controller-pods.kubevirt.io", "validationActions": ["Deny"]}


def test_image_with_a_quote_does_not_get_into_the_policy() -> None:
    done = helm("template", "kubevirt", str(CHART), "--set", NODE, "--set", "admission.launcherImages={x'y}")
    assert done.returncode != 0
    assert "launcherImages" in done.stderr


def test_every_policy_denies_also_on_evaluation_errors() -> None:
    options = ("guardian.enabled=true", "guardian.voters={a,b,c}", "nonOperationalNodes.taint=NoSchedule")
    policies = [each for each in objects(NODE, *options) if each["kind"] == "ValidatingAdmissionPolicy"]
    templates = [path.read_text() for path in (CHART / "templates").iterdir() if path.is_file()]
    assert len(policies) == sum(each.count("kind: ValidatingAdmissionPolicy\n") for each in templates)
    bindings = {
        each["spec"]["policyName"]: each["spec"] for each in objects(NODE, *options) if each["kind"] == "ValidatingAdmissionPolicyBinding"
    }
    assert {each["spec"]["failurePolicy"] for each in policies} == {"Fail"}
    assert {each["metadata"]["name"] for each in policies} == bindings.keys()
    assert all(each == {"policyName": name, "validationActions": ["Deny"]} for name, each in bindings.items())


def test_workload_update_flags_and_eviction_right_go_together() -> None:
    def arguments(*settings: str) -> list[str]:
        flags: list[str] = one("Deployment", "virt-controller", NODE, *settings)["spec"]["template"]["spec"]["containers"][0]["args"]
        return [each for each in flags if "update" in each or "rewritten" in each]

    def may_evict(*settings: str) -> tuple[bool, bool]:
        rules = one("ClusterRole", "kubevirt.io:virt-controller", NODE, *settings)["rules"]
        policy = one("ValidatingAdmissionPolicy", "virt-controller-pods.kubevirt.io", NODE, *settings)["spec"]
        return any("pods/eviction" in each["resources"] for each in rules), "evicts" in policy["validations"][0]["expression"]

    named = ("workloadUpdate.strategy=Evict", "workloadUpdate.batchSize=3", "admission.launcherImages={mirror/virt-launcher:v1}")
    given = controller_options.parse(["--launcher-image=x", *arguments(*named)]).settings
    assert (given.workload_update, given.rewritten_images) == (WorkloadUpdate("Evict", 3, 60.0), ("mirror/virt-launcher:v1",))
    assert controller_options.parse(["--launcher-image=x", *arguments()]).settings.workload_update == WorkloadUpdate()
    assert may_evict(*named) == (True, True)
    assert may_evict() == may_evict("workloadUpdate.strategy=None") == (False, False)
