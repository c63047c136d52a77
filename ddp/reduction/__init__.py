"""When to reduce which gradients: a state machine without torch.  Open `reducer` first."""
