"""`layouts.h5`: its columns and dimensions, and how it is written, read and verified.

Knows netCDF-4 and CF. Writes only to temporary names; `merge` renames the finished file. Never
looks into files of other programs.
"""
