"""The storage of a process: etcd or memory, encrypted, compacted and measured."""
