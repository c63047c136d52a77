"""Claims that texts on data-parallel training make, each put to the test by simulation or measurement."""
