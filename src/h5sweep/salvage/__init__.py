"""`h5sweep salvage`: recover results from files that the HDF5 library refuses.

    salvage          one salvage, file by file
    carved_view      what carving has found, as groups and datasets again
    carved_datasets  the values of such a dataset
    carved_data      its bytes, and what vouches for them
    data_gaps        which zeros are lost data; asks `zero_rows` about rows around them
    zero_rows        rows of zeros in pages of zeros
    packed_chunks    which packed stream is which chunk of which column
    chunk_streams    the streams of a file, and the chunks whose versions they may be
    last_flush       what the chunks were at the last flush
    carved_output    rows of an output of ours
    nameless_arrays  arrays that no name leads to
    library_reader   the HDF5 library as a second reader, in a child process
    library_child    the program of that child
    candidates       tasks that were found, as results that may be taken
    file_results     what the readers found in one file, and which of it is taken
    trust_labels     what speaks for and against a result: verified, consistent, unverified
    spool            results on their way, in a temporary file
    write_records    writes them as records
    report           what was recovered, as text or JSON

Never changes a damaged file.
"""
