"""The one place that imports h5py: `from .h5 import h5py`.

Without plug-ins, because a filter id in a file could otherwise make the HDF5 library load and run
a shared library. It reads the variable when it is loaded, so it must be set before the import.
"""

import os

os.environ["HDF5_PLUGIN_PRELOAD"] = "::"

import h5py

__all__ = ["h5py"]
