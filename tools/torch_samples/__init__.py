"""torch's own operator and module samples, compared with Lucid: eager, as a graph, and exported for every target."""
