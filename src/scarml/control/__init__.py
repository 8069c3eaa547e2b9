"""Control: decisions without I/O. Events in, actions out."""
