"""First-party plugins, installed as `carico_plugins`. They import `carico_agent.plugin_api`, nothing else of it."""
