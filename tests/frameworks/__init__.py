"""Each framework trains for seconds with its callback, in a venv of its own, and reports to a real agent."""
