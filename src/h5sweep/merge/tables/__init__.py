"""Columns of many files become columns of one file, in the same shape and of the same types."""
