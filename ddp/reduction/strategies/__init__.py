"""Overlap strategies, a file each.  Open `strategy` first; `ddp.reduction.overlap` finds them by name."""
