"""The HDF5 format as bytes, one module a chapter. No h5py, and nothing that writes.

    errors       damaged or unsupported: there is no third way to fail
    checksum     lookup3 and Fletcher's
    cursor       one field after the other
    source       bytes of a file, read on demand and never beyond its end
    file         structures by their addresses, with their checksums verified
    superblock   where a file begins, how wide its addresses are, where its root group is
    headers      object headers of both kinds, as lists of messages
    datatypes    what one element is
    messages     what the messages say: shape, layout, filters, links, attributes
    heaps        where names and links are kept: local, global and fractal heaps
    btrees       trees of both kinds
    groups       the links of a group, whichever way it keeps them
    chunks       where the chunks of a dataset lie, for every kind of index
    read_data    elements out of chunks and contiguous data, through the common filters
    tree         every object of a file, and what is wrong with each
    gather       the bytes at many places of a file, as rows of one array
    example_group    a group that others are compared with
    uniform_groups   groups that differ in their data only, read many at a time
    damage       what is left of a damaged file: objects found by scanning, names, gzip streams

No size, count or address of the file is believed before it was compared with the file's own size.
"""
