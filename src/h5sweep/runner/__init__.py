"""Run tasks: the pool, its workers, their limits, and what the user sees meanwhile.

    run              a whole run: what is missing, the pool, then a merge
    choose_tasks     which of the missing tasks it takes on
    early_stop       whether its first tasks all fail of one cause
    failures         failures by their cause, and as text
    try_tasks        `--try`: a few tasks in this process
    replay           rows are computed again and compared; run_again runs them
    run_again        tasks again, with an earlier version of the code
    replay_report    what came of it: data, words, JSON
    recorder         results of somebody else's pool
    settings         limits and numbers that a user may set
    pool             gives tasks to workers and says what became of each
    queue            which task is next, how often a failed one is tried again, how each ended
    workers          starts, again if that fails, syncs and ends the processes; enforces limits
    worker_handle    starts one worker, and what the coordinator knows of it
    worker_position  shared memory in which a worker says where it is
    hand_over        the user's function on its way to the workers
    worker           what runs in that process
    channel          messages between a worker and its coordinator
    task_log         what a task prints
    crash_stacks     where in its code a task was when it ended
    events           what a pool says
    progress         the line that counts; `time_left` knows the pace
    time_left        how long it will take
    status           `h5sweep status`

Knows processes and signals. A worker writes records, its log and, when tasks are run again, what it
finds of the code; it never loads the HDF5 library. `merge` puts the results together.
"""
