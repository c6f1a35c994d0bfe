"""The file system: find files, see who has them open, write them durably, load h5py safely.

    find_files     the files meant by what a user types
    open_files     which files are being written, and by whom
    inside_folder  files reached without following links
    durable        the ways we write: replace, append, sync
    move_files     move files, to another disk if need be
    h5py_loader    h5py without plug-ins, and the one way to write with it

Only `durable` and `move_files` sync, rename and remove. Only `h5py_loader` imports h5py. Knows
nothing about tasks or the contents of files.
"""
