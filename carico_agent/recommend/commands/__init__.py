"""Commands of recommend: each module is one command of `carico`."""
