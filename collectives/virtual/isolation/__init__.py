"""What a process has once, for each rank thread; and what is replaced for that, and put back."""
