"""Engines: three ways to the time of a collective on a network, and one answer.

    queues          the collectives of a communicator, by any engine (open first)
    makespan        engine makespan: all ranks at once, without events
      coflow_times    the messages of a row as they move the times of their ranks
      masked_times    the same, where some of them are empty
      steady_rows     rows that repeat, of which only some are worked out
      step_completion when a step is complete, by the rule of a transport
    row_execution   engine events: event by event, with the steps of all ranks as rows
      row_messages    a row under way
    rank_by_rank    engine ranks: event by event, each rank by itself
      simulated_port  a rank's side of the meeting point
      step_in_flight  a step, and what it awaits by the rule of a transport
      sends_under_way what has been sent and not yet taken
      meeting_point   where ranks post their messages, and these are matched

All evaluate the programs that are proved and run for real; where several apply they agree to the
picosecond (``tests/collectives/simulation/engines/test_engines.py``).
"""
