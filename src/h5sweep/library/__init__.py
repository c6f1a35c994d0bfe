"""The HDF5 library behind a process boundary: a file that crashes or hangs it ends only a child.

    child_process  one child: started, asked, waited for, ended
    child_program  the child's side of that
    limit_child    what a child gives up before it opens a file
    child_host     several children that look at many files
    inspect_child  the program that looks at a file
    read_datasets  reads every byte of a dataset, in that program
    child_answers  what its answers mean, as findings

Other rooms bring programs of their own: `salvage.library_child`, `merge.groups.copy_child`. Opens
HDF5 files only in children.
"""
