"""Parse arguments, make one library call, print the result, set the exit code.

Heavy modules are imported only when needed. There is one module per command, and

    entry        the commands in order; errors become messages and exit codes
    options      options that several commands share
    terminal     printing; no other module prints
    full_screen  a terminal that is drawn in place, and left as it was
"""

from .entry import cli, main

__all__ = ["cli", "main"]
