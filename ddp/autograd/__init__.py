"""The reducer between autograd and a communicator.  Open `driver` first, which wires the others."""
