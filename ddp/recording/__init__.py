"""Profiles recorded from training that runs."""

from ddp.recording.recording import Recording, record, record_profile

__all__ = ["Recording", "record", "record_profile"]
