"""Kubernetes' built-in kinds that our processes use: Pod, Node, Secret, Lease and others.

``resources`` has a :class:`~apiserver.apis.meta.resources.Resource` (group, version, plural, kind, scope) for each, for the client. There
are no models: these objects are plain JSON, read with :mod:`apiserver.apis.meta.objects`. Specific code is where it is used, for example
for pods in :mod:`controller.reconcilers.pods`.
"""
