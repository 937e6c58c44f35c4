"""Which Pod holds a place on which node: its state (`lifecycle`), all places (`ledger`), who was placed
lately by the extender that leads (`placed_pods`), and how the others ask it (`asks`)."""
