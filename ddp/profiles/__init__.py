"""Profiles: what a training step computes, and when its gradients are ready.  Those that ship lie beside."""

from ddp.profiles.profile import Buffers, Gradient, Profile, bundled_profiles, load_profile

__all__ = ["Buffers", "Gradient", "Profile", "bundled_profiles", "load_profile"]
