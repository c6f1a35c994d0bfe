"""Groups of many files become groups of one.

    merge_groups   all inputs: decide, write, read back
    open_groups    inputs as task groups, small ones many at once
    merged_above   the groups above tasks, with their attributes
    listed_groups  which groups of a file are tasks
    same_content   whether two groups hold the same
    write          groups that are alike, moved as bytes
    copier         the others, copied by the HDF5 library in a child process
    copy_child     the program of that child

Our own reader compares what was written with its sources.
"""
