"""Experiments and measurements; nothing here is installed."""
