"""The HDF5 library behind a process boundary: a file may kill or hang it, and only a child dies.

Knows how to start, limit, ask and replace children. What a child is asked, and what its answers
mean, is up to the room that owns the child. Never opens an HDF5 file itself.
"""
