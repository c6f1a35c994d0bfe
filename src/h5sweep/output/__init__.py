"""`layouts.h5`: its columns and dimensions, how it is written, read and verified.

Knows netCDF-4 and CF. Writes to temporary names alone; `merge` gives the file its own name. Never
looks into files of other programs.
"""
