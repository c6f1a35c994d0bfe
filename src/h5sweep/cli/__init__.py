"""Arguments → one call → output → exit code. Nothing heavy is imported before it is needed.

A module for each command; and

    entry        the commands in their order; errors as messages and exit codes
    options      what several commands take
    terminal     what is printed, and where: the only one that does
"""

from .entry import cli, main

__all__ = ["cli", "main"]
