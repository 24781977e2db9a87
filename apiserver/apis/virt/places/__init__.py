"""Names and places that several processes agree on: paths, labels, addresses, URLs. Pure."""
