"""The paper's algorithms, one file each, and a registry to find them, or a user's own, by name."""
