"""`layouts.h5`: its columns and dimensions, and how it is written, read and verified.

    columns        which columns there are, of which types and layouts
    dimensions     the names of their axes
    record_rows    results in record files, as rows of these columns
    record_forms   the headers that records have, and so their cells
    writer         writes a new output
    cf_attributes  the attributes of columns that netCDF and CF readers need; those of the whole
                   output are in `merge.from_records.output_plan`
    reader         reads an output, column by column
    stored_labels  what it says of parameters and results: units, attributes, axes
    one_row        the values of a single row
    csv_rows       an output as a table of plain values
    grid           an output opened with xarray, as a grid or as a table
    row_tasks      which task each row is, and which rows are sound
    verify         whether rows are still as they were written, by their checksums

Knows netCDF-4 and CF. Writes only to temporary names; `merge` renames the finished file. Never
looks into files of other programs.
"""
