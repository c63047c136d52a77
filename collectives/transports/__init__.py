"""Transports in real time: threads, Gloo and NCCL."""
