"""One HTML file that says how a sweep stands: to be mailed, printed, kept.

    write_report     gathers what is known and writes the page: the public function
    html             text made safe for HTML, and the few elements that all sections use
    page             the file as a whole: head, sections, style and script (page.css, page.js)
    outcomes         the outcome of every task, as numbers, and its word and class on the page
    sweep_page       the sections of a sweep, in their order
    verdict          how far it is, and what to do next, in the words of `status`
    map_layout       where each task lies on the map: rows, panels, ticks
    task_map         the map itself
    failure_section  failures by cause, and whether a cause always strikes
    arrivals         when results came, and what each worker did then
    file_section     record files, what was found in them, and which are safe to remove
    results          the numbers that tasks returned, from the output or from records
    result_plots     distributions by key column, and the distance from the best
    drawings         positions drawn to scale, for the best task of each group
    origin           versions of the code, and where the results are from
    files_page       the page of files of other programs

Asks the other rooms and shows what they say; decides nothing about tasks, results or files itself.
Writes nothing but the page.
"""
