"""HDF5 files of any program, seen as tasks: what is in a file, and what is wrong with it.

Knows the layouts that programs write (groups, columns, one task per file), which names are keys,
and how to decode values with our own reader. Only reads. Never loads the HDF5 library.
"""
