"""Updates of parameters as their gradients arrive, for strategies that do without a step of the user's."""
