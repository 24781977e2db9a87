"""The QEMU guest agent: virt-launcher's questions, and what it writes."""
