"""What all commands share: options, output, exit codes, the configuration, the connection to the database."""
