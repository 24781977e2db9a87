import dataclasses
import os
import pathlib

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SOURCES = pathlib.Path(__file__).resolve().parent

BRIDGE = "kvbr0"
CONTROL_PLANE_ADDRESS = "10.100.0.1"
CONTROL_PLANE_ADDRESS6 = "fd00:10:100::1"
APISERVER_PORT = 16443
ETCD_CLIENT_PORT = 12379
ETCD_PEER_PORT = 12380
SERVICE_CIDRS = ("10.96.0.0/16", "fd00:10:96::/112")
KUBERNETES_SERVICE_ADDRESS = "10.96.0.1"
DNS_ADDRESS = "10.96.0.10"
POD_CIDRS = ("10.244.0.0/16", "fd00:10:244::/48")


def _home() -> pathlib.Path:
    return pathlib.Path.home()


def cache() -> pathlib.Path:
    return pathlib.Path(os.environ.get("KUBEVIRT_CACHE") or _home() / ".cache" / "kubevirt-python").absolute()


def state() -> pathlib.Path:
    return pathlib.Path(os.environ.get("KUBEVIRT_STATE") or _home() / ".local" / "state" / "kubevirt-python").absolute()


def logs() -> pathlib.Path:
    return state() / "logs"


def kubeconfig() -> pathlib.Path:
    return state() / "kubeconfig"


def pki() -> pathlib.Path:
    return state() / "pki"


def shared_volumes() -> pathlib.Path:
    """Return the directory of the class ``shared``: pods of both nodes see it under the same path."""
    return state() / "volumes"


@dataclasses.dataclass(frozen=True)
class Node:
    number: int

    @property
    def name(self) -> str:
        return f"node{self.number}"

    @property
    def address(self) -> str:
        return f"10.100.0.1{self.number}"

    @property
    def address6(self) -> str:
        return f"fd00:10:100::1{self.number}"

    @property
    def pod_cidrs(self) -> tuple[str, str]:
        return f"10.244.{self.number}.0/24", f"fd00:10:244:{self.number}::/64"

    @property
    def link(self) -> str:
        return f"kv{self.name}"

    @property
    def directory(self) -> pathlib.Path:
        return state() / self.name

    @property
    def containerd_socket(self) -> pathlib.Path:
        return self.directory / "containerd.sock"

    @property
    def namespace(self) -> pathlib.Path:
        return pathlib.Path("/var/run/netns") / self.name


NODES = (Node(1), Node(2))
