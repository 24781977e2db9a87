"""The watch cache of one storage prefix (Go: ``k8s.io/apiserver/pkg/storage/cacher``), independent of kinds and stores.

Start with ``watchcache`` and its guarantees. ``items`` are sorted objects; ``changes`` become events; ``window`` keeps
the newest, and ``history`` reads older ones.
"""
