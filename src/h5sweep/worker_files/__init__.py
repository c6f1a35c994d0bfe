"""HDF5 files of any program, seen as tasks: what is in a file, and what is wrong with it.

    first_bytes      what a file is, by its first bytes and its superblock
    read_file        our own reading of a file, and what is wrong with its structure
    same_structure   files that differ in data and values only: one structure for all
    read_at_once     many small files, read together
    layouts          which groups, columns or files are tasks, without a key
    keyed_tasks      the same with a key, and the key of each
    tasks            the same for salvage, with what each reader could get
    file_view        how readers show a file to `tasks`
    skipped_names    what is left out of a file
    decode_elements  elements as NumPy arrays
    read_values      data and attributes as NumPy arrays
    findings         everything that can be said about a file: codes, sentences, next steps
    inputs           a file to be merged, and what became of it
    survey           looks at all inputs before anything is written
    open_inputs      opens an input again, and notices a change

Only reads. Never loads the HDF5 library.
"""
