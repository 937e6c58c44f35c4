"""Which Pod holds a place on which node: its state (`lifecycle`), all places (`ledger`), who was admitted
lately by the extender that leads (`admissions`), and how the others ask it (`asks`)."""
