"""The HDF5 library behind a process boundary: a file that crashes or hangs it ends only a child.

Starts, limits, queries and replaces children. What a child is asked, and what its answers mean, is
up to the room that owns the child. Opens HDF5 files only in children.
"""
