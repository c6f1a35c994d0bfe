"""Words that every room uses: keys, plans, values, units. Nothing here opens a file of results.

Knows what a task's key, number and result are, how they are encoded, and how numbers and names
read in a sentence. Never writes, never imports from another room.
"""
