"""Parts of a machine's spec, read as plain JSON: of the hardware that runs, or of that which is desired (``running``). Pure."""
