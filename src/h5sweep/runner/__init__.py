"""Run tasks: the pool, its workers, their limits, and what the user sees meanwhile.

Knows processes and signals. A worker writes records and nothing else; it never loads the HDF5
library. `merge` puts the results together.
"""
