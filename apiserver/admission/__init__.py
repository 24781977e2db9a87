"""Admission: plug-ins that change or refuse authorized writes and streams.

Plug-ins get the ``Attributes`` of a request (start with :mod:`apiserver.registry.generic.admission`), and change the object or raise.
``chain`` runs them, ``plugins`` has names, order and defaults; ``apiserver/server/admitting.py`` builds the chain.

Webhooks and policies share ``matching``, ``rules``, ``unapplied``, ``versions`` and ``namespaces``. Plug-ins for our kinds are in
:mod:`apiserver.registry.virt`. Texts and metrics are those of Go's ``k8s.io/apiserver/pkg/admission``.
"""
