"""tqdm: the same bars, which report as well. Three ways, the first without a change of the code:

    python -m carico_agent.progress train.py                          # every bar of the script, and of its libraries
    from carico_agent.progress.callbacks.tqdm import tqdm, trange     # instead of: from tqdm import tqdm, trange
    from carico_agent.progress.callbacks import tqdm; tqdm.install()  # every bar from here on

Of nested bars the outermost with a total reports. Bars with `disable=True` count nothing, and report nothing.
"""

import weakref
from typing import Any

from tqdm import std

from carico_agent.progress.client import flush, report


class _Outermost:
    """The bar that reports now: of those that are open and have a total, the one that was opened first."""

    def __init__(self) -> None:
        self._bar: weakref.ref[Any] | None = None

    def opened(self, bar: Any) -> None:
        """The first one, unless another one is open."""
        now = self._bar() if self._bar is not None else None
        if (now is None or now.disable) and bar.total and not bar.disable:  # tqdm disables a bar when it closes
            self._bar = weakref.ref(bar)

    def moved(self, bar: Any) -> None:
        self.opened(bar)  # some get their total later
        total = bar.total
        if self._is_outermost(bar) and total:
            report(min(bar.n, total), total)

    def closed(self, bar: Any) -> None:
        if self._is_outermost(bar):
            self._bar = None
            flush()

    def _is_outermost(self, bar: Any) -> bool:
        return self._bar is not None and self._bar() is bar


_outermost = _Outermost()
_init, _update, _close = std.tqdm.__init__, std.tqdm.update, std.tqdm.close


class tqdm(std.tqdm):
    """tqdm's own, which reports."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _init(self, *args, **kwargs)
        _outermost.opened(self)

    def update(self, n: float | None = 1) -> bool | None:
        shown: bool | None = _update(self, n)
        _outermost.moved(self)
        return shown

    def close(self) -> None:
        _outermost.moved(self)
        _close(self)
        _outermost.closed(self)


def trange(*args: int, **kwargs: Any) -> tqdm:
    """`tqdm(range(*args))`."""
    return tqdm(range(*args), **kwargs)


def install() -> None:
    """Let every bar of this process report: tqdm's class gets the three methods of ours."""
    std.tqdm.__init__, std.tqdm.update, std.tqdm.close = tqdm.__init__, tqdm.update, tqdm.close
