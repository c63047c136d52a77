"""Reports of the laboratory: on a terminal, as JSON, and as sections of docs/truth.md."""
