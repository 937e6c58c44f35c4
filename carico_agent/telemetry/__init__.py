"""What the kernel says about this node: one signal, one file; parse() is pure, read() is thin."""
