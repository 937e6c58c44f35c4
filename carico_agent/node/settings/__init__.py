"""Settings of the node's agent, by what they concern."""
