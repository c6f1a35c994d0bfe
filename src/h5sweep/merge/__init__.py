"""Many files become one: results of a sweep, or files of other programs.

    merge_files    the way of a merge of files, from the first look to the new name
    from_records   records of a run folder, and rows of an earlier output, become the output
    by_key         tasks of other programs' files become records (`--key`)
    tables         columns of many files become longer columns of one
    groups         groups of many files become groups of one

The output is written beside, read back, compared with its sources, and then renamed. Sources are
never changed.
"""
