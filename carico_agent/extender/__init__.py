"""For schedulers: reservations."""
