"""A small apimachinery: the common parts of all kinds of the Kubernetes API. No I/O, and no imports from our other packages.

Start with ``objects`` (plain JSON objects and accessors), ``resources`` (group, version, plural, kind), ``errors`` (a class per reason of
``metav1.Status``, shared by client and server), and ``validation`` (field errors, all in one answer).

Values: ``names``, ``quantity``, ``times``, ``versions``, ``users``, ``labels`` and ``fields`` (selectors). Shapes: ``structure`` checks
JSON without pydantic, ``schema`` and ``decoding`` are for virt-api's pydantic models, ``objectmeta`` has the rules of ``metadata``.
Changes: ``json_patch``, ``merge_patch``, ``strategic_patch``, and ``managedfields`` for server-side apply. Others: ``flags`` (command
lines), ``lines`` (untrusted text for logs) and ``backoff``.

Error texts are apimachinery's. Only virt-api loads ``schema`` and ``decoding``.
"""
