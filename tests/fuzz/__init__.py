"""Everything that can be sent to virt-api, sent: no 500, no hang, no traceback."""
