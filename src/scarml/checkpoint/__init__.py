"""Running checkpoints: when, how much and which blocks to save; the cache that all its users share."""
