"""The certificate of this virt-handler, and its trust in others.

The private key is made on the node and never leaves it. Users of the certificate take :attr:`keeping.Identity.files` and reload them with
``certs.reloading``.
"""
