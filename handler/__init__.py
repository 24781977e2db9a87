"""virt-handler, the agent of a node: devices for pods, networks and streams of guests, and the owner of their status."""
