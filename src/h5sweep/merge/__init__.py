"""Many files become one: results of a sweep, or files of other programs.

    merge_files      a merge of files, from the first look to the final name
    choose_parts     which inputs become columns and which become groups
    export           the results in files of other kinds
    relabel          other names, units and axes for what is there, then a merge
    row_labels       the units and axes that rows have by the code that made them
    policy           what to do about files that cannot be merged as they are
    damaged_inputs   damage that shows only to the HDF5 library, or when data are read
    salvage_refused  what is intact in refused files, as inputs
    merged_before    what the output holds already
    merged_mark      the mark by which a merged file is known as ours
    audit_entry      what the audit trail says of a merge
    messages         sentences about what cannot be merged
    report           what a merge did

    from_records     records of a run folder, and rows of an earlier output, become the output
    by_key           tasks of other programs' files become records (`--key`)
    tables           columns of many files become longer columns of one
    groups           groups of many files become groups of one

The output is written under a temporary name, read back, compared with its sources, then renamed.
Sources are never changed. Two results for one task are compared by `by_key.equal_results` or
`groups.same_content`, in a damaged file by `salvage.file_results`; of a run's own records the
latest counts (`state.state`).
"""
