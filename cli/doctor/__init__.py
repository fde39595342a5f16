"""`idem doctor`: each module checks one subject and returns findings; `checks` runs them in order."""
