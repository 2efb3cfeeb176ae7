"""torch's own operator and module samples, run against Lucid: eagerly, as a graph, and exported for every target."""
