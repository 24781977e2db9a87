"""The Common Expression Language with Kubernetes' extensions and cost limits.

``compiler.compile_expression`` compiles a text for an ``environment.Environment`` (functions and variables) to a
``Program``, which evaluates to a ``Result``. In the order of processing: ``lexer`` (tokens), ``parser`` and ``macros``
(the tree of ``syntax``), ``compiler`` (a closure per node). ``registry`` finds functions of ``library``.
"""
