"""carico: how many more Pods can this node take, right now?"""

__version__ = "0.1.0"
