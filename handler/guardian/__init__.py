"""The guardian of a node: it promises when the node's guests end, and ends them. It depends on no other process of the node."""
