"""Kubernetes' built-in kinds that our processes use, such as Pod and Lease.

There are no models: these objects are plain JSON, read with :mod:`apiserver.apis.meta.objects`.
"""
