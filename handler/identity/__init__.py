"""This virt-handler's certificate, and its trust in others. The private key never leaves the node."""
