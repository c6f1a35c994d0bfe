"""Decide what is declared, done and missing: every command asks here.

Knows the study that declares the tasks, and compares the plan with the records and with the rows of
the output. Numbers the tasks that the plan lacks. Never runs a task, never writes results.
"""
