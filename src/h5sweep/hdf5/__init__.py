"""The HDF5 format as bytes, one module per chapter. Without h5py; nothing here writes.

    errors          damaged or unsupported: the only two ways to fail
    checksum        lookup3 and Fletcher checksums
    cursor          a structure, field by field
    source          bytes of a file, read on demand and never beyond its end
    file            structures by their addresses, with their checksums verified
    superblock      where a file begins, how wide its addresses are, where its root group is
    headers         object headers of both kinds, as lists of messages
    datatypes       what one element is
    messages        what the messages say: shape, layout, filters, links, attributes
    heaps           where names and links are kept: local, global and fractal heaps
    btrees          trees of both kinds
    groups          the links of a group, however it stores them
    chunks          where the chunks of a dataset lie, for every kind of index
    lzf             the packing of h5py's own filter
    read_data       elements out of chunks and contiguous data, through the common filters
    tree            every object of a file, and what is wrong with each
    holes           which bytes may differ in another file of the same structure
    gather          the bytes at many places of a file, as rows of one array
    example_group   a group as an example, and the comparison of others with it
    make_example    the making of such an example
    uniform_groups  groups that differ in data, lengths and values, of one file or many small ones
    small_files     files with a few such groups each, many at a time
    read_uniform    the reader of both
    damage          what is left of a damaged file: objects found by scanning, names, packed streams

No size, count or address in a file is trusted before it is checked against the size of the file.
"""
