"""apimachinery in miniature: resources, errors, names, labels, fields, quantities, patches."""
