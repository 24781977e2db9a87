"""The identity of this virt-handler, and its trust in others.

::

    trust ──▶ the ConfigMap kubevirt-trust: authorities, revoked nodes; which node a peer's certificate names
    keeping ─▶ the certificate of this node: asked for, renewed, kept (``plan`` is pure)
    keys ────▶ key pairs and requests for certificates, made by openssl
    store ───▶ all of it as files that only root reads, below /run: a restart needs nobody

The private key is made on the node and never leaves it. Whoever serves or dials with the certificate takes :attr:`keeping.Identity.files`
and follows them with ``certs.reloading``.
"""
