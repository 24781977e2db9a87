"""The watch cache of one prefix of the storage (Go: ``k8s.io/apiserver/pkg/storage/cacher``). Knows neither kinds nor stores.

``watchcache`` has the promises, and is to be read first. From below: ``items`` are the objects in their order, written in the one form of
``canonical``, with equal bytes had once (``sharing``); ``changes`` are what watches are told; ``window`` keeps the newest of them and has
the watches that read there, found by ``audiences``; ``history`` reads older ones from the storage. ``freshness`` knows how far the cache
has to be before a read, ``writes`` what this server is writing, ``indexing`` finds by label or field, ``consistency`` compares with the
storage, and ``memory`` gives back what is free. The order is a contract: "The cache is understood from its items upwards".
"""
