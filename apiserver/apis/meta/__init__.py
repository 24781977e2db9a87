"""A small apimachinery: the common parts of all kinds of the Kubernetes API.

Start with ``objects``, ``resources``, ``errors`` (a class per reason of ``metav1.Status``), and ``validation`` (field errors, all in one
answer). ``structure`` checks JSON without pydantic; only virt-api loads ``schema`` and ``decoding``.

Error texts are apimachinery's. This package does no I/O, and imports none of our others.
"""
