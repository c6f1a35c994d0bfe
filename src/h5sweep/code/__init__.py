"""The user's code: which it is, whether it has changed, and how a worker gets it.

    own_modules      the modules of a study that are the user's own, with their sources
    loaded_code      whether a loaded module is still what its file says
    source_facts     what a source says without being run: imports, variables, a digest
    members          what classes, functions and objects of the user's hold
    reachable        the functions and values that a function depends on
    describe_value   values as they are compared and recorded: plain, or by checksum
    arithmetic       how a process calculates, where that is not as it begins
    version          one version of the code: sources, globals, constants, inputs, packages, labels
    store            the versions of a run folder, by number
    restore          a version again: its globals and constants, and what is not as it was
    relabelled       a version by the names, units and axes of today
    process_values   values that are others in each process because they say which one it is
    changes          what differs between two versions, in words
    snapshot_import  workers import own modules from a version, not from the disk
    by_value         a function of a script, a cell or a closure, sent as it is
    module_state     what a script has changed in its modules, for workers that import them
    payload          what all workers of a run are handed, in memory that they share

It finds out without running anything; workers, and those that replay a row, import what was read.
Only what a running program holds is ever pickled, for the workers of that run, and never stored.
"""
