"""Kubernetes' built-in kinds that our processes read or write: Pod, Node, Secret, Lease and others.

``resources`` is all there is: for each a :class:`~apiserver.apis.meta.resources.Resource` (group, version, plural, kind, scope), which
the client takes. There are no models: objects of these kinds are plain JSON, read by the accessors of :mod:`apiserver.apis.meta.objects`.
What is special to one of them stands where it is used, as of pods in :mod:`controller.reconcilers.pods`.
"""
