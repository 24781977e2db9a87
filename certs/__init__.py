"""Certificates: issue, parse, decide about renewal, write files, follow files.

::

    issuing ──▶ PEM ──▶ reading ──▶ renewal (pure: must it be renewed, and why)
       │
       └────▶ files (atomic) ──▶ reloading (ssl contexts that follow the files) ──▶ peers (identity of the peer)

    requests (certificate signing requests) ──▶ issuing

    contexts: every TLS context of every process

``contexts``, ``reloading``, ``files``, ``peers`` and ``validity`` only use the standard library, so virt-handler does not load
``cryptography``.

Node certificates live one day (``renewal.Policy``), because nodes are compromised more easily.
"""
