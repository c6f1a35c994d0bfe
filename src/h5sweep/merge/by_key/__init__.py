"""Tasks of other programs' files become records of a run folder, one for each key."""
