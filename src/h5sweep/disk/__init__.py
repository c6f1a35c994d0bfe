"""The file system: find files, see who has them open, write them durably, load h5py safely.

Only `durable` and `move_files` sync, rename and remove. Only `h5py_loader` imports h5py, without
plug-ins. Knows nothing about tasks or the contents of files.
"""
