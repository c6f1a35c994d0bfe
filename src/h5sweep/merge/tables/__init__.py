"""Columns of many files become longer columns of one.

    merge_tables       all inputs: decide, copy, read back
    input_structure    what one input, and all like it, has to be merged
    find_tables        which datasets are the columns of one table
    schema             the tables and columns of all inputs together
    types              the types of columns, and one for columns of several types
    merged_attributes  each as in the first input that has it
    rows               rows of a dataset in any storage
    create             the datasets and attributes of the new file
    copy               rows of inputs into the new file, each file read once
    pack_chunks        rows that are packed again, in threads
    pieces             what is written at once, and whether it reads back
    duplicates         rows that may be one task
    prove_rows         whether an output has the rows of a file, for `clean`

Every piece that is written has a checksum, by which it is read back.
"""
