"""`h5sweep clean`: what is safe to remove, proven by reading the output; quarantine; restore.

The only room that moves or deletes worker files and records, and only after its own proof.
"""
