"""One way out of the status, one file. Every module here has `open_publisher(context)` (see ../publisher.py)."""
