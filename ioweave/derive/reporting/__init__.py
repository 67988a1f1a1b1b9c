"""Reports assembled from what the other stages found; imports every one of them, and none imports it."""
