"""A pod's file system, where virt-launcher's helpers find their sockets."""

from tests.fakes.pod import pod_directories  # noqa: F401 - a fixture
