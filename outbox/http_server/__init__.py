"""An HTTP server with bounds on what a client may cost: connections, framing, memory, problems."""
