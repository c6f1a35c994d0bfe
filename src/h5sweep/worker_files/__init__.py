"""HDF5 files of any program, seen as tasks: what is in a file, and what is wrong with it.

    first_bytes      what a file is, by its first bytes and its superblock
    read_file        our own reading of a file, and what is wrong with its structure
    same_structure   files that differ in data and values only: one structure for all
    read_at_once     many small files, read together
    find_tasks       where the tasks of a file are, by their key: the one place that decides
    layouts          the same without a key: which groups, columns or files are tasks
    judge_data       what is wrong with these as results of a worker
    keyed_tasks      the tasks of a file as our own reader lists it
    read_tasks       the tasks of a file that may be damaged, with what vouches for their values
    file_view        how salvage and its child show such a file
    skipped_names    what is left out of a file
    decode_elements  elements as NumPy arrays
    read_values      data and attributes as NumPy arrays
    findings         everything that can be said about a file: codes, sentences, next steps
    inputs           a file to be merged, and what became of it
    survey           looks at all inputs before anything is written
    open_inputs      opens an input again, and notices a change

Only reads. Never loads the HDF5 library.
"""
