"""Users' scripts: started, observed, run in virtual time."""
