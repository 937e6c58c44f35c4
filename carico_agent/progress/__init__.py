"""Jobs report how far they are: the client for training loops, and what an agent makes of the reports.

`from carico_agent.progress import track` needs the standard library only.
"""

from carico_agent.progress.client import Reporter, flush, report, track

__all__ = ["Reporter", "flush", "report", "track"]
