"""Fencing: the administrator's fence agent switches an unreachable node off, and virt-controller states that the node is off."""
