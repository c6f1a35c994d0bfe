"""What the children with the HDF5 library answered, as findings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from ..base.units import size_text
from ..worker_files import findings
from ..worker_files.findings import Finding, State
from .child_process import Answer

MOST_FOR_ONE_PLACE = 3


def findings_of(answer: Answer) -> list[Finding]:
    """A child's words, or its end, as findings."""
    if answer.absent:
        return [findings.LIBRARY_ABSENT.finding(why=answer.absent)]
    if answer.killed_by:
        return [findings.LIBRARY_KILLED.finding(why=answer.killed_by)]
    if answer.timeout_s is not None:
        return [findings.LIBRARY_HANGS.finding(limit_s=answer.timeout_s)]
    said = answer.said
    found: list[Finding] = []
    if said.get("out_of_memory"):
        limit = size_text(said.get("memory_bytes", 0))
        found.append(findings.LIBRARY_MEMORY.finding(limit=limit))
    for where, why in said.get("errors", ()):
        found.append(_error_finding(where, why))
    for where, why in said.get("notes", ()):
        found.append(findings.NOT_READ.finding(where=where, why=why))
    found += _chunk_findings(said.get("chunks", ()))
    found += _own_findings(said)
    return found


def new_among(
    found: list[Finding], known: list[Finding], fault_places: Collection[str]
) -> list[Finding]:
    """What the library adds to what is known of a file and of damaged places in it."""
    codes = {finding.code for finding in known}
    filters = {f.message.split(": ")[0] for f in known if f.code == findings.FILTER.code}
    is_damaged = any(finding.state is State.DAMAGED for finding in known)
    new = []
    for finding in found:
        where = finding.message.split(": ")[0]
        if finding.code == findings.ROOT.code and finding.code in codes:
            continue
        if finding.code == findings.FILTER.code and where in filters:
            continue
        is_known = is_damaged and (where == "open" or where in fault_places)
        if finding.code == findings.LIBRARY_REFUSES.code and is_known:
            continue
        new.append(finding)
    return new


def _error_finding(where: str, why: str) -> Finding:
    if "unknown message" in why:
        return findings.FEATURE.finding(where=where, why=why)
    if where == "list /":
        return findings.ROOT.finding(why=why)
    return findings.LIBRARY_REFUSES.finding(where=where.removeprefix("list "), why=why)


def _chunk_findings(chunks: Iterable[dict[str, Any]]) -> Iterator[Finding]:
    rules = {
        "stale": findings.CHUNK_STALE,
        "moved": findings.CHUNK_MOVED,
        "filter": findings.CHUNK_FILTER,
        "chunk-beyond": findings.CHUNK_BEYOND,
        "beyond": findings.DATA_BEYOND,
    }
    counts: dict[str, int] = {}
    for chunk in chunks:
        where = chunk["where"]
        counts[where] = counts.get(where, 0) + 1
        if counts[where] > MOST_FOR_ONE_PLACE:
            continue
        if "filter" in chunk:
            yield findings.FILTER.finding(where=where, number=chunk["filter"], named="")
        else:
            yield rules[chunk["kind"]].finding(**chunk)


def _own_findings(said: dict[str, Any]) -> Iterator[Finding]:
    """What was found in record files, plans and outputs of ours."""
    if said.get("owner"):
        yield findings.LIVE.finding(who=said["owner"])
    if damages := said.get("damages"):
        yield findings.RECORDS_DAMAGED.finding(count=len(damages), offset=damages[0][0])
    if said.get("torn_bytes"):
        yield findings.TORN_TAIL.finding(size=said["torn_bytes"])
    if wrong := said.get("wrong_tasks"):
        yield findings.OUTPUT_ROWS.finding(count=said["wrong_count"], task=wrong[0])
    if said.get("not_merged"):
        yield findings.OUTPUT_BEHIND.finding(count=said["not_merged"])
    if said.get("plan"):
        yield findings.PLAN.finding(why=said["plan"])
