"""The files in `layouts.h5.run/` and beside the output: records, lock, audit trail.

    layout           every path in a run folder, and the files that are written whole
    records          record files: frames, checksums, what a torn or damaged one leaves
    uniform_records  thousands of equal records, verified and read at once
    file_window      bytes of a file that may grow, be cut short or be unreadable in places
    fitting_keys     which keys that the plan lacks can become tasks
    redo_requests    which tasks are to be run again
    lock             who works on an output; take-over
    heartbeat        a file that changes while its process is at work
    parts            the parts of a sweep at work, and which tasks each has claimed
    orders           what a run has sent to an engine, for as long as it runs
    audit            the audit trail: what came from which file

Defines every byte of these files. Writes them, and reads whatever a kill or a failing disk has left
of them. Never touches HDF5, and never decides what is done: `state` does.
"""
