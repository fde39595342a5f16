"""One call to a provider: lane, breaker, HTTP or function transport, and the proof that nothing was sent."""
