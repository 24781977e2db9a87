"""A process's storage: etcd or memory, encrypted, compacted and measured."""
