"""Write docs/cli.md from what every command prints with --help: `python docs/make_cli.py`."""

from __future__ import annotations

from pathlib import Path

import click

from h5sweep.cli import cli

TARGET = Path(__file__).with_name("cli.md")
WIDTH = 80
HEAD = """\
# The command line

What `--help` prints. Do not edit: `python docs/make_cli.py` writes this file, and a test fails when
it is not what the commands say.
"""


def page() -> str:
    """The whole of docs/cli.md."""
    group = click.Context(cli, info_name="h5sweep", terminal_width=WIDTH, max_content_width=WIDTH)
    parts = [HEAD, _section("h5sweep", cli, group)]
    for name in cli.list_commands(group):
        command = cli.get_command(group, name)
        assert command is not None
        parts.append(_section(f"h5sweep {name}", command, _child(command, name, group)))
    return "\n".join(parts)


def _child(command: click.Command, name: str, parent: click.Context) -> click.Context:
    return click.Context(command, info_name=name, parent=parent, **command.context_settings)


def _section(title: str, command: click.Command, context: click.Context) -> str:
    context.help_option_names = ["-h", "--help"]
    return f"## {title}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
