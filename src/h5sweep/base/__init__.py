"""The vocabulary that every room shares: keys, plans, values, units.

Defines a task's key, number and result, how they are encoded, and how numbers and names are worded
in messages. Opens no file of results, writes nothing, imports from no other room.
"""
