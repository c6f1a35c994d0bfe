"""Groups of many files become groups of one file, each taken once."""
