"""Runs plugins, and keeps the journal that puts back whatever they changed.

This file imports nothing: the restore kit (kit.py) carries this package without the rest of the agent.
"""
