"""Admission: plug-ins that change or refuse authorized writes and streams, and their chain.

Plug-ins get the ``Attributes`` of a request (start with :mod:`apiserver.registry.generic.admission`), and change the object
or raise. ``chain``, which the registry calls, runs mutating plug-ins, then validating ones on the complete object.
``plugins`` has names, order and defaults; ``apiserver/server/admitting.py`` builds the chain.

The plug-ins are ``namespace_lifecycle``, ``resource_quota``, ``webhook`` and ``policy`` with expressions of
:mod:`apiserver.cel`. Webhooks and policies share ``matching`` and ``rules``, ``unapplied`` (why a patch fails),
``versions``, and ``namespaces``, which ``namespace_lifecycle`` also uses. ``changes`` invalidates the chain's
cache.

Plug-ins for our kinds are in :mod:`apiserver.registry.virt`. Texts and metrics are those of Go's
``k8s.io/apiserver/pkg/admission``.
"""
