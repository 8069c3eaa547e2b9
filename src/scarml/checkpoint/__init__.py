"""Running checkpoints: when, how much and which blocks to save; the cache that servers, library and laboratory share."""
