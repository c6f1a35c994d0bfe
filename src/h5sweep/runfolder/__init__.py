"""The files in `layouts.h5.run/` and beside the output: records, lock, audit trail.

Defines every name and every byte of these files. Writes them, and reads whatever a kill or a
failing disk has left of them. Never touches HDF5, and never decides what is done: `state` does.
"""
