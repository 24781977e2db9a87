"""The watch cache of one prefix of the storage (Go: ``k8s.io/apiserver/pkg/storage/cacher``). Knows neither kinds nor stores."""
