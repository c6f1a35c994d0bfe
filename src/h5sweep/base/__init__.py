"""The vocabulary that every room shares: keys, plans, values, units.

    plan               all tasks of a sweep, by number
    listed_plan        a plan made from a list, a table or a CSV file
    declared_plan      the plan of a sweep: a list, a product, or both
    key_objects        keys that are dates, paths, members of enums, tuples
    near_floats        values of keys that differ by rounding only
    study_function     the function of a sweep: its name, its file, its parameters
    selection          the tasks that a user means: `farm_id=3 seed=0..9`
    number_ranges      task numbers as [first, last] pairs
    missing_reason     why a task is missing, in words
    relabels           names, units and axes that were changed after results were there
    key_pattern        keys as other programs write them in names: `farm{farm_id:d}_s{seed:d}`
    key_rule           where a task's key is found: a pattern, or names
    values             values of results, and how they are encoded
    plain_values       a value of any kind as an array, a number, a text or a time
    returned           whatever a task returns, as named values with their labels
    encode_returned    the same, encoded, and a note of what cannot be
    coordinates        the coordinates of axes that a sweep declares
    compare            whether values stay the same in another type
    attribute_json     attributes of columns, as JSON
    crc32_combine      the checksum of a whole from those of its pieces
    provenance         where results come from: code, versions, host, command
    process_id         which process: a pid, its start and its boot
    new_process        how a new interpreter runs a program of ours
    units              durations, sizes and counts, as people write and read them
    safe_text          text made safe for a terminal, CSV or JSON
    static_html        small static HTML for notebooks, in which every text is escaped
    progress_callback  how long work says how far it is

Opens no file of results, writes nothing, imports from no other room.
"""
