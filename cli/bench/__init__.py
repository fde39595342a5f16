"""`idem bench`: what idem costs on a database, beside a floor that is measured in the same run.

    result = run(BenchSettings(intents=2000), database)

It works in a database of its own (`database`), with real processes: clients that accept, a worker, an HTTP provider.
"""
