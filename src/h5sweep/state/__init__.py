"""Decide what is declared, done and missing: every command asks here.

    study            the study that declares the tasks, and how it is loaded
    declare_sweep    compare what a study declares with what is there, and note it
    code_change      whether the code is that of the results there, and what to do if not
    known_forms      texts of a CSV file as the objects that earlier runs had for them
    task_codes       which version of the code has made each result
    result_names     how results are called
    state            the outcome of each task, and why a task is missing
    state_counts     how many are done, by key column and by group
    record_place     where a record lies, and what one says of a failure
    redo_order       which result counts of tasks that were asked to be run again
    join_sweep       a part joins the sweep of a run folder
    known_code       the code that a run folder has kept
    run_command      how a sweep is run again, in a message
    redo_tasks       ask for tasks to be run again; withdraw that
    state_notes      sentences about a state
    missing_report   the missing tasks as text, JSON or CSV
    expected_tasks   tasks that are named with --expect; the run folder of what a user names
    extend_plan      numbers for tasks that the plan lacks; what the output holds
    tasks_in_output  which tasks the rows of the output are

Compares the plan with the records and with the rows of the output. Never runs a task, never writes
results.
"""
