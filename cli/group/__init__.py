"""A group of processes under one supervisor: the daemons of `idem run`, of `idem up` and of a demo."""
