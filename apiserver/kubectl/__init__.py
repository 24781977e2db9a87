"""The kubectl plugin ``kubectl-virt``: a client and nothing more."""
