"""A small client-go: requests to an API server, and local copies of its objects as plain JSON.

A ``config.Config`` (a kubeconfig, or the pod's service account) configures a ``rest.Client``, which raises errors of
:mod:`apiserver.apis.meta.errors`, or ``TransportError`` without an answer. ``informer`` copies a resource to a
``store`` by a watch. ``delegated`` checks tokens. ``connections`` pools connections, ``dialling`` opens them,
``exchange`` runs a request, ``answers`` parses.
"""
