"""`h5sweep clean`: find what is safe to remove, prove it from the output, quarantine, restore.

The only room that moves or deletes worker files and records, and only after its own proof.
"""
