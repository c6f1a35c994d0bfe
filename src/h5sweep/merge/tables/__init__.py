"""Columns of many files become longer columns of one.

    merge_tables       all inputs: decide, copy, read back
    find_tables        which datasets are the columns of one table
    input_structure    what one input, and all like it, has to be merged
    schema             the tables and columns of all inputs together
    types              the types of columns, and one for columns of several types
    merged_attributes  each as in the first input that has it
    create             the datasets of the new file
    copy               bytes, each file read once
    rows               rows of a dataset in any storage
    converted_rows     rows that cannot be copied as bytes
    pack_chunks        rows that are packed again, in threads
    taken_rows         which rows came from which input
    duplicates         rows that may be one task
    prove_rows         whether an output has the rows of a file, for `clean`

Every piece that is copied has a checksum, by which it is read back.
"""
