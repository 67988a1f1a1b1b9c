"""Writers: each turns a `Scene` of primitives into one file format."""
