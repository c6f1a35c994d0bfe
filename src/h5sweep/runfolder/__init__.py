"""What lies in `layouts.h5.run/` and beside the output: records, the lock, the audit trail.

Knows every name and every byte of these files. Writes them, and reads them back whatever a kill
or a disk has left of them. Never touches HDF5, and never decides what is done: `state` does.
"""
