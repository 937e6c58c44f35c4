"""Commands of the service: each module is one command of `carico`."""
