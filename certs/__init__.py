"""Certificates: issue, read, decide about renewal, write files, follow files.

::

    issuing ──▶ PEM ──▶ reading ──▶ renewal (pure: is it still good, and if not, why)
                 │
                 └────▶ files (atomic) ──▶ reloading (ssl contexts that follow the files) ──▶ peers (who is at the other end)

    requests (what others ask to be signed) ──▶ issuing
    contexts: every TLS context of every process

``contexts``, ``reloading``, ``files``, ``peers`` and ``validity`` use the standard library alone, so that virt-handler, which only presents
and checks certificates, does not load ``cryptography``. Nothing here knows Kubernetes: Secrets, the rotation of whole authorities and the
signing for nodes are ``controller.reconcilers.certificates``, what a node asks for and keeps ``handler.identity``.

Lifetimes (``renewal.Policy``): a leaf lives one year and is renewed after two thirds of it, an authority ten years likewise. The
renewal loop runs all the time and its tests rotate in seconds, so a short life would buy no practice; what a long one buys is that a
controller which is down, or may not write Secrets, can stay so for four months before anything expires, and the loss of the API to an
expired certificate is what users of such add-ons complain of. Certificates of nodes live a day, for a node is lost more easily than the
control plane, and what stops without one is streams and migrations. A node is revoked by name (``apiserver.apis.virt.rights.trust``); to
revoke everything, delete the authority's Secret, which replaces it and everything it signed.
"""
