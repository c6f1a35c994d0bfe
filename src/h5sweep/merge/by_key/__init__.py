"""Tasks of other programs' files become records of a run folder: `--key`.

    to_records         all inputs, one after the other; decides between two results for one task
    open_tasks         the tasks of any input
    tasks_of_file      what every kind of file provides
    foreign_file       a file of another program: its datasets, and their values as results
    group_tasks        tasks that are groups, datasets or whole files
    uniform_tasks      tasks in groups that are alike, thousands at once
    row_tasks          tasks that are rows
    own_files          tasks in files that h5sweep wrote
    unmatched          refuses to lose what no key covers
    number_keys        numbers for their keys
    column_attributes  attributes on which all tasks agree
    equal_results      whether two results are the same
    folder_results     results that the run folder has already
    new_record_file    where the records go
    prove_rows         whether an output has all tasks of a file, for `clean`

Nothing of a task is lost: what no key covers stops the merge, or is named.
"""
