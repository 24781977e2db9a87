"""A small client-go: requests to an API server, and local copies of its objects as plain JSON.

From the top: a ``config.Config`` (a kubeconfig, or the pod's service account) configures a ``rest.Client``, which returns
objects or raises errors of :mod:`apiserver.apis.meta.errors`, or ``TransportError`` without an answer. ``informer`` keeps a
copy of a resource by a watch (``watching``); ``store`` has its objects, indexes and subscribers. ``delegated``
authenticates and authorizes tokens, ``backoff`` has pauses, ``credentials`` reloads tokens and certificates, ``turns``
yields the event loop.

For HTTP/1.1, ``connections`` pools connections, ``dialling`` opens them, ``exchange`` runs a request, ``answers`` parses by
``httptools``, ``transport`` has socket options and errors. ``buffers`` is for our servers.

virt-api, virt-controller and virt-handler use it; virt-launcher talks to no API server, and the kubectl plugin uses
``kubernetes_asyncio``. It is independent of virtual machines.
"""
