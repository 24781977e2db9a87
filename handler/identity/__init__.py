"""The certificate of this virt-handler, and its trust in others.

::

    trust ──▶ the ConfigMap kubevirt-trust: authorities, revoked nodes; the node in a peer's certificate
    keeping ─▶ the certificate of this node: requested, renewed, stored (``plan`` is pure)
    keys ────▶ key pairs and certificate requests, made by openssl
    store ───▶ all of it as files that only root reads, below /run, so that a restart needs no other component

The private key is made on the node and never leaves it. Users of the certificate take :attr:`keeping.Identity.files` and reload them with
``certs.reloading``.
"""
