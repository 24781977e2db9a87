"""Parts of a machine's spec, read as plain JSON. Pure."""
