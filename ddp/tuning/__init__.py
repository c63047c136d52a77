"""The search for bucket caps, strategy and algorithm of the shortest step."""
