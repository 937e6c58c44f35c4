"""Where histories of containers come from: traces, the agent, Prometheus, VPA checkpoints."""
