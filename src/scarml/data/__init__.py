"""Data sets: one file each, read with every size and value checked, and a registry to load them by name."""
