"""What is declared, done and missing: the one place that decides, and every command asks it.

Knows the study that declares tasks, and compares the plan with the records and with the rows of
the output. Gives numbers to tasks that the plan lacks. Never runs a task, never writes results.
"""
