"""Commands of progress: each module is one command of `carico`."""
