"""Commands of the federation: each module is one command of `carico`."""
