"""Keeping things running: named guarded tasks, ticks, backoff, systemd, the agent's own cost."""
