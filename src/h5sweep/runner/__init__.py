"""Run tasks: the pool, its workers, their limits, and what the user sees meanwhile.

    run              a whole run: what is missing, the pool, then a merge
    run_part         one part of a sweep, beside others; part_tasks says which tasks it takes on
    part_tasks       its own slices, then what no other part has in hand
    part_number      which part of how many this process is
    submit           what is missing as jobs of a batch system
    engine           Dask, MPI, or any executor: what runs calls elsewhere
    run_far          an engine runs parts: sent, shown, ended
    far_calls        the calls that it has; those that it loses are sent again
    far_part         what it calls, in its own process
    run_tasks        a pool runs tasks: shown, recorded, stopped when asked to
    interruption     what signals ask of a run
    walltime         when a batch system will end this process
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
    constants_watch  whether tasks change the constants of those after them
    channel          messages between a worker and its coordinator
    task_log         what a task prints
    show_task        everything that is known about one task
    task_report      the same as data, in words, as JSON
    crash_stacks     where in its code a task was when it ended
    events           what a pool says
    progress         the line that counts; `time_left` knows the pace
    time_left        how long it will take
    status           `h5sweep status`; key_table counts by the values of keys
    key_table        lines with bars
    watch_screen     `h5sweep status --watch`, on a terminal of any size

Knows processes and signals. A worker writes records, its log and, when tasks are run again, what it
finds of the code; it never loads the HDF5 library. `merge` puts the results together.
"""
