"""The Common Expression Language with Kubernetes' extensions, with cost limits.

``compiler.compile_expression`` compiles a text for an ``environment.Environment`` (functions and names of variables) to a
``Program``, or raises ``CompileError`` with the position. Evaluating a program with variables, any number of times, returns
a ``Result``: a value or an error, and the cost.

Read it in the order of processing: ``lexer`` (tokens), ``parser`` and ``macros`` (the tree of ``syntax``), ``compiler`` (a
closure per node, with ``aggregates``, ``comparing``, ``loops``, ``operators`` and ``selecting``; ``code`` is a compiled
node, ``frame`` the state of an evaluation). ``values`` and ``times`` define values, ``cost`` costs and limits. ``registry``
finds functions; ``library`` has them by subject. ``asking`` evaluates expressions that call the authorizer.

Admission policies and webhooks' match conditions (:mod:`apiserver.admission`) use it; it depends neither on them nor on a
kind.
"""
