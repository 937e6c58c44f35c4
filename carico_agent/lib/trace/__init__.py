"""The trace file: readings and container rows as JSON lines, written by the agent, read by replay and recommend."""
