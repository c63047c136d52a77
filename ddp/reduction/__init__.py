"""Decisions on reduction, a state machine without torch.  Open `reducer` first."""
