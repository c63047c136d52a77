"""What feeds the reducer: autograd over real or virtual ranks, or a recorded backward pass."""
