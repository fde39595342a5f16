"""For tests of applications that use idem: a fake bank, an embedded PostgreSQL, a pytest plugin, conformance suites."""
