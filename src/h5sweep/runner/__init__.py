"""Run tasks: the pool, its workers, their limits, and what a person sees meanwhile.

Knows processes and signals. A worker writes records and nothing else; it never loads the HDF5
library. Results are put together by `merge`.
"""
