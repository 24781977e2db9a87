"""Kubernetes' built-in kinds that our processes use, such as Pod and Lease.

``resources`` has a :class:`~apiserver.apis.meta.resources.Resource` for each, for the client. There are no models: these objects are plain
JSON, read with :mod:`apiserver.apis.meta.objects`.
"""
