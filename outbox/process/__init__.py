"""What surrounds a process and may fail while its work goes on: the reader of its log, the folder of its metrics."""
