"""Commands of the extender: each module is one command of `carico`."""
