"""The file system of a pod, which virt-launcher's helpers find their sockets in."""

from tests.fakes.pod import pod_directories  # noqa: F401 - a fixture
