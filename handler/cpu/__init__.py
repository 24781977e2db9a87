"""Labels of this Node for the CPU models and features available to KVM guests."""
