"""The experiments of lab/REPORT.md, one file each: `section(quick)` runs it and returns what the report prints."""
