"""`h5sweep salvage`: recover results from files that the HDF5 library refuses.

Reads datasets without directories or indexes, and weighs what speaks for and against each result.
Writes what it finds as records. Never changes a damaged file.
"""
