"""Commands of burst: each module is one command of `carico`."""
