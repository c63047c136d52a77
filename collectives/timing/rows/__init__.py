"""Rows: step k of all ranks at once, as arrays.

pattern         which ranks send and receive in a step, the same for all chunks of it (open first)
sizes           of the messages of a row
repeated_rows   rows with their sizes, those that repeat gone through once
makespan        engine makespan: times of all ranks, without events
coflow_times    the messages of a row as they move the times of their ranks
step_completion when ranks complete their steps, by the rule of a transport
row_execution   engine events: event by event, with the steps of all ranks as rows
row_messages    rows that move: made one by one, and under way
"""
