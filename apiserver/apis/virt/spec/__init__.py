"""Parts of a machine's spec as plain JSON, of the desired or the running hardware (``running``)."""
