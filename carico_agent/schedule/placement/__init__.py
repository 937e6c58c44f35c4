"""Which Pod holds a place on which node: its state (`lifecycle`), all places (`ledger`), and the claims that several
extenders make in the nodes' placement Leases (`lease`)."""
