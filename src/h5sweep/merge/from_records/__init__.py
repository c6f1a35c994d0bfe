"""Records of a run folder, and rows of an earlier output, become one output."""
