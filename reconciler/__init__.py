"""The reconciler: asks the provider what became of each unknown and awaiting row, and settles it by what it learns."""
