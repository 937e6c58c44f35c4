"""The documentation as a site: `make site`. The pages are those of the tree; nothing is written twice."""
