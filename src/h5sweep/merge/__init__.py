"""Many files become one: results of a sweep, or files of other programs.

    merge_files    a merge of files, from the first look to the final name
    from_records   records of a run folder, and rows of an earlier output, become the output
    by_key         tasks of other programs' files become records (`--key`)
    tables         columns of many files become longer columns of one
    groups         groups of many files become groups of one

The output is written under a temporary name, read back, compared with its sources, then renamed.
Sources are never changed.
"""
