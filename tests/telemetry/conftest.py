from fix_desk import configuration, desk, environment, variables  # noqa: F401
