"""What tests of an application with idem use: a fake bank, an embedded PostgreSQL, a pytest plugin, suites."""
