"""The library: a running checkpoint in a training loop of the user's own."""
