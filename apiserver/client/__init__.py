"""client-go in miniature: how our processes ask an API server, and keep copies of what it has. Objects are plain JSON.

To be read from the top down. A ``config.Config`` (a kubeconfig, or the pod's service account) goes into a ``rest.Client``, which has the
verbs: JSON objects out, or the errors of :mod:`apiserver.apis.meta.errors`, or ``TransportError`` where there was no answer. ``informer``
keeps a copy of one resource by a watch (``watching``); ``store`` has its objects and indexes, and tells whoever subscribed. Promises are
numbered in the docstring of ``informer``. ``delegated`` asks who a token is and what they may, ``backoff`` has pauses that grow,
``credentials`` follows tokens and certificates in their files, ``turns`` lets others have their turn of the event loop.

Below that is HTTP/1.1: ``connections`` keeps connections, ``dialling`` opens them, ``exchange`` has one request and its answer on one,
``answers`` reads the bytes by ``httptools``, ``transport`` has the sockets' options and errors. ``buffers`` is for servers of ours.

virt-api, virt-controller and virt-handler use it. virt-launcher talks to no API server, and the kubectl plugin has
``kubernetes_asyncio``. Nothing here knows of virtual machines.
"""
