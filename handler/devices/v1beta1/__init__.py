"""The kubelet's device plugin API, generated from ``api.proto`` by ``regenerate``."""
