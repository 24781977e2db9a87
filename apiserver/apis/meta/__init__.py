"""The common parts of all kinds of the Kubernetes API, with apimachinery's error texts.

Start with ``objects``, ``resources``, ``errors`` and ``validation``. ``structure`` checks JSON without pydantic; only virt-api loads
``schema`` and ``decoding``.
"""
