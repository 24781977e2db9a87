"""Admission: plug-ins that may change or refuse a write or a stream after it was authorized, and the chain of them.

In go the ``Attributes`` of one request (:mod:`apiserver.registry.generic.admission`, to be read first); out come a changed object, or the
error with which a plug-in refuses. ``chain`` is what the registry asks: mutating plug-ins, then, once the object is whole, validating
ones. ``plugins`` has their names, their order and which are on; ``apiserver/server/admitting.py`` makes them and puts the chain together.

Then each plug-in by itself: ``namespace_lifecycle``, ``resource_quota``, ``webhook``, and ``policy``, whose expressions are
:mod:`apiserver.cel`. Webhooks and policies share ``matching`` and ``rules`` (is this request theirs?), ``unapplied`` (why a patch does not
apply), ``versions``, and ``namespaces``, which ``namespace_lifecycle`` asks, too. ``configuration`` reads an administrator's file,
``changes`` has the chain ask anew who wants to see what.

Nothing here knows a kind of ours: plug-ins that do come from :mod:`apiserver.registry.virt`. Texts and metrics are those of Go's
``k8s.io/apiserver/pkg/admission``.
"""
