"""Commands about `carico` itself: each module is one command."""
