"""Certificates: issue, parse, decide about renewal, write files, follow files.

::

    issuing ──▶ PEM ──▶ reading ──▶ renewal (pure: must it be renewed, and why)
                 │
                 └────▶ files (atomic) ──▶ reloading (ssl contexts that follow the files) ──▶ peers (identity of the peer)

    requests (certificate signing requests) ──▶ issuing
    contexts: every TLS context of every process

``contexts``, ``reloading``, ``files``, ``peers`` and ``validity`` only use the standard library, so that virt-handler,
which presents and checks certificates, does not load ``cryptography``. Nothing here depends on Kubernetes:
``controller.reconcilers.certificates`` handles Secrets, rotation of authorities and signing for nodes, and
``handler.identity`` the requests of nodes.

Lifetimes (``renewal.Policy``): a leaf lives one year and an authority ten; both are renewed after two thirds. The renewal
loop runs all the time and its tests rotate in seconds, so short lives would add no practice. With long ones, a controller
that is down, or may not write Secrets, has four months before anything expires; users of such add-ons complain about APIs
lost to expired certificates. Node certificates live one day, because nodes are compromised more easily than the control
plane, and an expired one only stops streams and migrations. A node is revoked by name
(``apiserver.apis.virt.rights.trust``). To revoke everything, delete the authority's Secret: it is replaced, with everything
it signed.
"""
