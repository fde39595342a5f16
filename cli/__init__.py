"""The command `idem`: one module or folder per command, and `base` with what they share."""
