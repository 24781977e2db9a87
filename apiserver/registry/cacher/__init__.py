"""The watch cache of one storage prefix (Go: ``k8s.io/apiserver/pkg/storage/cacher``), independent of kinds and stores.

Start with ``watchcache`` and its guarantees. From the bottom: ``items`` are sorted objects, encoded by ``canonical``;
``sharing`` deduplicates bytes. ``changes`` become events; ``window`` keeps the newest and finds watches by ``audiences``;
``history`` reads older ones. ``freshness`` makes reads linearizable, ``writes`` tracks this server's writes, ``indexing``
finds labels and fields, ``consistency`` compares with storage, ``memory`` trims the heap. The import contract "The cache is
understood from its items upwards" enforces the order.
"""
