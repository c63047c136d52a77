"""Planning of clusters: questions, their points, and the answers."""
