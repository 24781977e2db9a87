"""The Common Expression Language as Kubernetes extends it, with the costs that bound what an expression may take.

In go a text and an ``environment.Environment`` (the functions, and the names of variables); ``compiler.compile_expression`` returns a
``Program``, or raises ``CompileError`` with the place. A program is evaluated with values of the variables, any number of times, and
returns a ``Result``: a value or an error, and what it cost.

To be read in the order of that way: ``lexer`` (tokens), ``parser`` and ``macros`` (the tree, which is ``syntax``), ``compiler`` (a closure
for each node, out of ``aggregates``, ``comparing``, ``loops``, ``operators`` and ``selecting``; ``code`` is a compiled node, ``frame`` what
it has at hand). ``values`` and ``times`` say what values are, ``cost`` what steps cost and where the limits are. ``registry`` finds
functions; ``library`` has them by subject. ``asking`` evaluates where an expression may ask the authorizer, whose answer is waited for.

Admission policies and the match conditions of webhooks (:mod:`apiserver.admission`) are what it is for; it knows neither them nor a kind.
"""
