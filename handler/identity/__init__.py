"""The certificate of this virt-handler, and its trust in others. The private key never leaves the node."""
