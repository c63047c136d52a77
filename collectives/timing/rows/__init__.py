"""Rows: step k of all ranks at once, as arrays.

pattern         which ranks send and receive in a step, the same for all chunks of it (open first)
repeated_rows   rows that repeat, gone through once
makespan        engine makespan: times of all ranks, without events
coflow_times    the messages of a row as they move the times of their ranks
masked_times    the same, where some of them are empty
steady_rows     rows that repeat, of which only some are worked out
row_execution   engine events: event by event, with the steps of all ranks as rows
row_messages    a row under way
sends_of_rows   what has been sent and not yet taken, of all ranks
"""
