"""Names and places shared by several processes: paths, labels, addresses, URLs."""
