"""Pictures: one file a figure, each a function of a tidy table. The only place that knows matplotlib."""
