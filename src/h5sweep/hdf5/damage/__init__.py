"""What is left of a damaged HDF5 file: objects found by scanning, names, gzip streams, zeros."""
