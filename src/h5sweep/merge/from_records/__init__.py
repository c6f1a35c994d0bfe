"""Records of a run folder, and rows of an earlier output, become the output.

    build             a merge of a run: scan, write, read back, rename
    snapshot          the same into another file, without a lock and while a run goes on
    output_plan       which rows and columns there will be; the attributes of the whole output
    returned_labels   what tasks have said of their results: axes, units, attributes
    axis_coordinates  the coordinates of axes
    one_label         whether all rows of a column have one unit and one order of axes
    rows              the rows, block by block
    prove_records     whether an output has the results of a record file, for `clean`

The old output stays in its place until the new one was read back.
"""
