"""The kubelet's device plugin API; the modules are generated from ``api.proto`` by ``regenerate``."""
