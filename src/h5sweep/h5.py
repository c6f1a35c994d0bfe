"""The one place that imports h5py: `from .h5 import h5py`.

Without plug-ins, because a filter id in a file could otherwise make the HDF5 library load and run
a shared library. It reads the variable when it is loaded, so it must be set before the import.
"""

import os
from typing import Any

os.environ["HDF5_PLUGIN_PRELOAD"] = "::"

import h5py

__all__ = ["h5py", "is_elsewhere"]


def is_elsewhere(dataset: Any) -> bool:
    """Whether the data of a dataset are in other files.

    Of such that cannot be opened, the library makes fill values without a word.
    """
    settings = dataset.id.get_create_plist()
    is_virtual: bool = settings.get_layout() == h5py.h5d.VIRTUAL
    return is_virtual or settings.get_external_count() > 0
