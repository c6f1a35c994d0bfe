"""Run thousands of tasks in parallel, keep every finished result, get one HDF5 file."""
