"""Two small models that use all of the protocol: for tests, and to read before writing one's own."""
