"""Commands of the control plane's product: each module is one command of `carico`."""
