"""Write docs/findings.md from the table of findings: `python docs/make_findings.py`."""

from __future__ import annotations

from pathlib import Path

from h5sweep.worker_files.findings import RULES, Rule, State

TARGET = Path(__file__).with_name("findings.md")
HEAD = """\
# What a check can find

Codes and names never change; scripts may depend on them. The tests make a file for every finding.
Do not edit: `python docs/make_findings.py` writes this page, and a test fails when it is not what
the code says.
"""
SECTIONS = {
    "D1": "The file as a whole",
    "D2": "Its structure",
    "D3": "Its data",
    "D4": "What a worker left in it",
    "D5": "h5sweep's own files",
    "N6": "Worth knowing, no damage",
}


def page() -> str:
    """The whole of docs/findings.md."""
    return "\n".join([HEAD, *(_section(prefix, title) for prefix, title in SECTIONS.items())])


def _section(prefix: str, title: str) -> str:
    rules = [rule for rule in RULES if rule.code.startswith(prefix)]
    return f"## {title}\n\n" + "\n".join(_entry(rule) for rule in rules)


def _entry(rule: Rule) -> str:
    state = "a note; the file may be sound" if rule.state is State.SOUND else rule.state.value
    return (
        f"### {rule.code} {rule.name}\n\n"
        f"- state: {state}\n"
        f"- says: {rule.sentence}\n"
        f"- next: {rule.next}\n"
        f"- for example: {rule.example}\n"
    )


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
