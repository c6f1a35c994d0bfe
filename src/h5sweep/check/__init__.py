"""`h5sweep check`: the state of each file, the reason, and the next step.

    check    looks at every file, by our own reader and by the HDF5 library in child processes
    report   what was found, as text, JSON, CSV or HTML

Never writes, as its imports show.
"""
