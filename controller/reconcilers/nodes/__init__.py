"""Nodes, as far as virtual machines depend on them. virt-controller only reads Nodes (``controller/rbac.md``)."""
