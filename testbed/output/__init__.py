"""Tables, figures and folders of results."""
