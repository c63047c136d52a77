"""Studies behind the commands: simulations, predictions, networks."""
