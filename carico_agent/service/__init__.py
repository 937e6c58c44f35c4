"""carico as a systemd service: install, uninstall, restore."""
