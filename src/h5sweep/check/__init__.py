"""`h5sweep check`: the state of each file, the reason, and the next step.

Uses our own reader, and the HDF5 library in child processes. Never writes, as its imports show.
"""
