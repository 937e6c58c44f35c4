"""The agent: samples one node, asks the model and publishes its Status."""
