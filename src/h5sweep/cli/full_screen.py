"""A terminal that is drawn in place, and left as it was."""

from __future__ import annotations

import os
import shutil
import signal
import sys

from .terminal import print_texts

ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"  # another screen, no cursor, no long line takes two
LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
WAKING = {signal.SIGWINCH, signal.SIGTSTP}


class FullScreen:
    """A second screen of the terminal, for as long as it is entered; the first stays as it was.

    Killed with SIGKILL, the terminal stays in the second one; whatever else ends it, leaves it.
    """

    def __init__(self, *, has_colors: bool) -> None:
        self.has_colors = has_colors
        self._blocked: set[int] = set()

    @classmethod
    def of_terminal(cls) -> FullScreen | None:
        """None where nobody looks on a terminal that can be drawn in place."""
        if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
            return None
        return cls(has_colors=not os.environ.get("NO_COLOR"))

    def size(self) -> os.terminal_size:
        return shutil.get_terminal_size()

    def __enter__(self) -> FullScreen:
        # Not let through but waited for: a terminal of another size is filled at once, and one that
        # is suspended is left first.
        self._blocked = {*signal.pthread_sigmask(signal.SIG_BLOCK, WAKING)}
        print_texts([ENTER])
        return self

    def __exit__(self, *_: object) -> None:
        print_texts([LEAVE])
        signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked)

    def draw(self, lines: list[str]) -> None:
        """Show these lines and nothing else, in one write: nothing is seen to be cleared."""
        print_texts([HOME + "\n".join(CLEAR_LINE + line for line in lines) + CLEAR_BELOW])

    def wait(self, most_s: float) -> None:
        """Until something else is to be drawn: after this time, or on a terminal that changed."""
        woken = signal.sigtimedwait(WAKING, most_s)
        if woken is not None and woken.si_signo == signal.SIGTSTP:
            print_texts([LEAVE])
            os.kill(os.getpid(), signal.SIGSTOP)  # until the shell has us go on
            print_texts([ENTER])
