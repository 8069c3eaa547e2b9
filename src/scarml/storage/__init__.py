"""Stores, and the running checkpoint on them: one interface, one file a kind of store, segments, the run folder."""
