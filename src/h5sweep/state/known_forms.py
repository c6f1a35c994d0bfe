"""Texts of a CSV file as the objects that earlier runs gave the function for them.

A list of tasks has texts for dates, paths, members of enums and tuples. What they stand for is
known from the code that made the results there.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace

from ..base.key_objects import form_here, maker_here
from ..base.plan import Plan, PlanColumn, plan_column
from ..base.study_function import code_of
from ..code.relabelled import by_labels_of_now
from ..code.store import load_versions, numbers_by_id, parse_version
from ..code.version import CodeVersion
from ..errors import UsageError
from ..runfolder.layout import RunFolder
from .study import Declaration


def with_known_forms(folder: RunFolder, declaration: Declaration) -> Declaration:
    """The declaration, with objects for texts of a CSV file if the results there had objects.

    UsageError if a text stands for none. Where no such objects can be made here, the texts stay.
    """
    columns = declaration.plan.columns
    if not any(_is_text(column, declaration) for column in columns):
        return declaration
    version = _last_version(folder)
    if version is None:
        return declaration
    forms = by_labels_of_now(version, folder.load_relabels(), {}).facts["forms"]
    own = str(code_of(declaration.function).__module__)
    columns = tuple(
        _with_form(column, forms, own) if _is_text(column, declaration) else column
        for column in columns
    )
    found = copy.copy(declaration)
    found.set_plan(Plan(columns, declaration.plan.id, declaration.plan.earlier))
    return found


def _is_text(column: PlanColumn, declaration: Declaration) -> bool:
    return column.type == "str" and column.name in declaration.read_names


def _last_version(folder: RunFolder) -> CodeVersion | None:
    """The code of the last run, or the last that an output without a run folder has."""
    known = load_versions(folder)
    if not known and folder.output.exists():
        from ..output.reader import OutputReader

        with OutputReader(folder.output) as reader:
            known = {number: parse_version(text) for number, text in reader.code_texts().items()}
    last = numbers_by_id(known).get(str(folder.load_sweep().get("code_id")))
    return known.get(last or max(known, default=0))


def _with_form(column: PlanColumn, forms: Mapping[str, str], own_module: str) -> PlanColumn:
    form = form_here(forms.get(column.name, ""), own_module)
    make = maker_here(form)
    if make is None:
        return column
    objects = []
    for text in column.values:
        try:
            objects.append(make(str(text)))
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{column.name}={text} in the list of tasks stands for no {form.split()[-1]}, "
                f"which {column.name} is in the results there: correct it"
            ) from error
    made = plan_column(column.name, objects)
    if len(made.values) < len(column.values):
        raise UsageError(
            f"the list of tasks has one value of {column.name} in two spellings: write each "
            "value in one way"
        )
    return replace(made, codes=column.codes)
