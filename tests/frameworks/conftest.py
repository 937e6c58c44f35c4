"""The scripts are run by the venv of the frameworks, not imported here."""

collect_ignore = ["scripts"]
