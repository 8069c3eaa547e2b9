"""Words made code: blocks, tables, partitions, random streams, distances and the `Model` protocol. No I/O."""
