"""Files: MSCCL XML out and in, MSCCL++ plans and NCCL tuner tables out; strict JSON, and files written whole.

``lowering`` says what a program does to input, output and scratch buffers, which is what the formats
speak of; ``docs/exchange.md`` says what each can express, and what was never run.
"""
