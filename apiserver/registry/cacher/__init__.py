"""The watch cache of one storage prefix (Go: ``k8s.io/apiserver/pkg/storage/cacher``), independent of kinds and stores.

Start with ``watchcache``, which states the guarantees. From the bottom: ``items`` are sorted objects, encoded by
``canonical``, and ``sharing`` deduplicates their bytes. ``changes`` become watch events; ``window`` keeps the newest and
finds watches by ``audiences``; ``history`` reads older ones from storage. ``freshness`` makes reads linearizable,
``writes`` tracks this server's writes, ``indexing`` looks up labels and fields, ``consistency`` compares with storage, and
``memory`` returns free memory. The import contract "The cache is understood from its items upwards" enforces the order.
"""
