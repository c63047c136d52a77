"""Data-parallel training: when to reduce which gradients.  Open `ddp.reducer` first."""
