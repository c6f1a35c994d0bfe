"""`h5sweep salvage`: results out of files that the HDF5 library refuses.

Knows how to read datasets without directories or indexes, and what speaks for or against a
result. Writes records of what it found. Never changes a damaged file.
"""
