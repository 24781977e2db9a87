"""This node's side of live migrations, as source or as target."""
