"""etcd's messages, generated (see ``regenerate``); etcd and its protocol are licensed under Apache-2.0."""
