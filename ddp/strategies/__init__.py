"""Overlap strategies, a file each.  Open `strategy` first; `ddp.overlap` finds them by name."""
