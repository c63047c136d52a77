"""Equal layers in a run without data: what one has issued is issued again for others."""
