"""Parameters of the models that ranks train, recorded at every step: for replicas that must stay alike."""
