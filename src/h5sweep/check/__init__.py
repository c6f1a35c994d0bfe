"""`h5sweep check`: the state of each file, why, and what to do next.

Asks our own reader, and the HDF5 library in children. Never writes: its imports show it.
"""
