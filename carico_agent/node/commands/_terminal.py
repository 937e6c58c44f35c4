"""A terminal for a full-screen view: keys one by one, the screen of before back at the end, however it ends.

Not curses: it reads terminfo of the user's TERM, which is often missing in containers and over SSH ("Error opening
terminal"); every terminal of today understands the few sequences below.
"""

import os
import select
import signal
import sys
import termios
import tty
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Self

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""The alternate screen without a cursor; the screen of before, as it was."""
HOME, ERASE_LINE, ERASE_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
MAX_KEYS = 64
END = "\x04"
"""Ctrl-D, and what `wait` returns when the terminal is gone."""


class Terminal:
    """A context manager around the live view. `wake` may be called from any thread."""

    def __init__(self) -> None:
        self._saved = termios.tcgetattr(0) if sys.stdin.isatty() else None
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)

    def __enter__(self) -> Self:
        signal.signal(signal.SIGWINCH, lambda number, frame: self.wake())
        signal.signal(signal.SIGTSTP, self._pause)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _end)
        self._take()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._give_back()

    def wake(self) -> None:
        """`wait` returns now."""
        with suppress(BlockingIOError):  # full: it will wake anyway
            os.write(self._write_end, b".")

    def wait(self) -> str:
        """Until a key, a resize or `wake`; the keys that were pressed."""
        keyboard = [0] if self._saved is not None else []
        ready, _, _ = select.select([self._read_end, *keyboard], [], [])
        if self._read_end in ready:
            os.read(self._read_end, 4096)
        if 0 not in ready:
            return ""
        keys = os.read(0, MAX_KEYS)
        return keys.decode(errors="replace") if keys else END  # nothing: the terminal is gone

    @staticmethod
    def size() -> tuple[int, int]:
        """Columns and rows."""
        try:
            found = os.get_terminal_size(1)  # not shutil's: it believes $COLUMNS, which does not follow a resize
        except OSError:
            return 80, 24
        return found.columns or 80, found.lines or 24

    @staticmethod
    def draw(lines: list[str]) -> None:
        """The whole screen, without flicker: each line is written over the old one."""
        sys.stdout.write(HOME + "\n".join(line + ERASE_LINE for line in lines) + ERASE_BELOW)
        sys.stdout.flush()

    def _take(self) -> None:
        if self._saved is not None:
            tty.setcbreak(0)
        sys.stdout.write(ENTER)
        sys.stdout.flush()

    def _give_back(self) -> None:
        sys.stdout.write(LEAVE)
        sys.stdout.flush()
        if self._saved is not None:
            termios.tcsetattr(0, termios.TCSADRAIN, self._saved)

    def _pause(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-Z: the shell gets its screen, and we ours when it brings us back."""
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()
        self.wake()


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
