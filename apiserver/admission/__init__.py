"""Admission: plug-ins that change or refuse authorized writes and streams.

Start with their interface, :mod:`apiserver.registry.generic.admission`. ``chain`` runs them, ``plugins`` has names,
order and defaults. Webhooks and policies share ``matching``, ``rules``, ``unapplied``, ``versions`` and ``namespaces``.
Texts and metrics are those of Go's ``k8s.io/apiserver/pkg/admission``.
"""
