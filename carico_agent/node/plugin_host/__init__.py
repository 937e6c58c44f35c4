"""Runs plugins, and keeps the journal that puts back whatever they changed.

This file imports nothing: the restore zipapp (restore_zipapp.py) carries this package without the rest of the agent.
"""
