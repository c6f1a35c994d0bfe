"""`h5sweep clean`: find what is safe to remove, prove it from the output, quarantine, restore.

    removable_files  which files may go, and what speaks against the others
    prove            whether everything in a file is in the output
    quarantine       the folder that files are moved to, and deleted from by name
    restore          the way back
    clean_files      the public calls, each under the output's lock
    report           what is said about it

The only room that moves or deletes worker files and records, and only after its own proof.
"""
