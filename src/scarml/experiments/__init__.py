"""The laboratory: failures replayed along recorded trajectories, and what they cost. One file a table or figure."""
