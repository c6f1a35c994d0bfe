"""What is wrong with the data of a file as results of a worker: `check` and a merge ask here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..base.units import size_text
from ..hdf5.messages import DEFLATE, Storage
from ..hdf5.tree import Dataset, Tree, data_extents, least_unbelievable
from . import findings
from .findings import Finding
from .layouts import FileLayout, FileTable, Style

_KNOWN_FILTERS = {1, 2, 3, 4, 5, 6, 32000}
_GZIP_LEVELS = {(level,) for level in range(10)}  # the library reads no data that claim another


def judge_contents(layout: FileLayout, require: Sequence[str] = ()) -> list[Finding]:
    """What is wrong with the data as a worker's results."""
    found = [*_judge_datasets(layout.tree)]
    is_listed = not any(f.is_listing for f in layout.tree.faults)
    if layout.skipped.marks and layout.style is Style.NOTHING and is_listed:
        found.append(findings.INIT_ONLY.finding())
    if require:
        found += _judge_required(layout, require)
    elif layout.style is Style.ROWS:
        uneven = [table for table in layout.tables() if len(table.lengths) > 1]
        keyed = [table for table in uneven if layout.has_key(table)]
        for table in keyed if layout.has_own_rules else layout.tables():
            found += _judge_table(layout, table, is_usual=len(uneven) > 1)
    return found


def _judge_datasets(tree: Tree) -> Iterator[Finding]:
    """Data that are not in the file, filters that are not known, shapes that nobody should read."""
    size = tree.file.size
    for path, dataset in tree.datasets:
        beyond = [(at, n) for at, n in data_extents(dataset) if at + n > size]
        if beyond and dataset.layout.storage is Storage.CHUNKED:
            yield findings.CHUNK_BEYOND.finding(
                where=path, count=len(beyond), address=min(at for at, _ in beyond)
            )
        elif beyond:
            missing = sum(min(at + n - size, n) for at, n in beyond)
            yield findings.DATA_BEYOND.finding(where=path, missing=missing)
        if dataset.is_external or dataset.layout.storage is Storage.VIRTUAL:
            yield findings.FEATURE.finding(where=path, why="its data are in another file")
        for step in dataset.filters:
            if step.number not in _KNOWN_FILTERS:
                named = f" ({step.name})" if step.name else ""
                yield findings.FILTER.finding(where=path, number=step.number, named=named)
            elif step.number == DEFLATE and step.values not in _GZIP_LEVELS:
                why = f"gzip of level {', '.join(map(str, step.values))}, which does not exist"
                yield findings.METADATA.finding(where=path, why=why)
    yield from _judge_claims(tree)
    if tree.links_out:
        yield findings.LINKS_OUT.finding(count=tree.links_out)


def _judge_claims(tree: Tree) -> Iterator[Finding]:
    """Data that the file cannot hold, and a reader would have to make up."""
    by_claim = sorted(tree.datasets, key=lambda it: it[1].claimed_bytes)
    claims = [dataset.claimed_bytes for _, dataset in by_claim]
    if claims and claims[-1] >= least_unbelievable(claims, tree.file.size):
        where, largest = by_claim[-1]
        stored = size_text(sum(n for _, n in data_extents(largest)))
        yield findings.HUGE.finding(where=where, shape=largest.space.dims, stored=stored)


def _judge_required(layout: FileLayout, require: Sequence[str]) -> Iterator[Finding]:
    """Every group that has one of the columns must have all, of equal length."""
    if any(fault.is_listing for fault in layout.tree.faults):
        return
    groups = [g for g, columns in layout.by_group.items() if columns.keys() & set(require)]
    for group in groups or ["/"]:
        columns = layout.by_group.get(group, {})
        prefix = group.strip("/") + "/" if group != "/" else ""
        missing = [name for name in require if name not in columns]
        if missing:
            yield findings.REQUIRED.finding(names=", ".join(prefix + name for name in missing))
        if layout.style is Style.ROWS:
            table = FileTable(group, {name: columns[name] for name in require if name in columns})
            if len(table.lengths) > 1:
                yield findings.UNEQUAL.finding(lengths=_lengths_text(table))


def _judge_table(layout: FileLayout, table: FileTable, *, is_usual: bool) -> Iterator[Finding]:
    """What is wrong with a table; a killed writer leaves no more than one of unequal lengths."""
    if len(table.lengths) > 1:
        is_interrupted = _is_interrupted(table) and not is_usual
        rule = findings.UNEQUAL if is_interrupted else findings.LENGTHS
        yield rule.finding(lengths=_lengths_text(table))
        return
    if not table.is_even:
        return
    if not layout.tree.faults:  # a damaged index says enough by itself
        yield from _judge_coverage(table)
    if tail := layout.tail_rows(table):
        yield findings.BOGUS_TAIL.finding(first=table.rows - tail, last=table.rows - 1)


def _is_interrupted(table: FileTable) -> bool:
    """Whether the lengths look like one append that did not reach every column."""
    if len(table.lengths) != 2:
        return False
    ahead = max(table.lengths) - table.rows
    return ahead == 1 or (len(table.columns) >= 4 and 0 < ahead <= table.rows)


def _lengths_text(table: FileTable) -> str:
    by_length: dict[int, list[str]] = {}
    for name, dataset in table.columns.items():
        by_length.setdefault(dataset.rows or 0, []).append(name)
    return "; ".join(f"{n:,}: {', '.join(by_length[n])}" for n in sorted(by_length, reverse=True))


def _judge_coverage(table: FileTable) -> Iterator[Finding]:
    """Columns whose last chunk is in no index, while the others have theirs."""
    covered = {name: _rows_covered(dataset) for name, dataset in table.columns.items()}
    if max(covered.values()) < table.rows:
        return
    for name, rows in covered.items():
        side = table.columns[name].layout.chunk[0] if table.columns[name].layout.chunk else 0
        if 0 < rows < table.rows and table.rows - rows <= side:
            where = f"{table.group.rstrip('/')}/{name}"
            yield findings.DATA_SHORT.finding(where=where, first=rows, last=table.rows - 1)


def _rows_covered(dataset: Dataset) -> int:
    side = dataset.layout.chunk[0] if dataset.layout.chunk else 0
    return max((chunk.start[0] + side for chunk in dataset.chunks), default=0)
