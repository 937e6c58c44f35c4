"""Commands of the node's agent: each module is one command of `carico`."""
