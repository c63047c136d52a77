"""Two ways to the time of a collective on a network, and one answer.

    queues          the collectives of a communicator, by either engine (open first)
    makespan        all ranks at once, without events
      passage         the messages of a row as they move the times of their ranks
      trickle         the same, one by one, where few move
    row_execution   event by event, with the steps of all ranks as rows
      row_messages    a row under way
      agenda          who takes part in which row
    rank_by_rank    event by event, each rank by itself
    rows            the steps of all ranks as arrays, for both

Both evaluate the programs that are proved and run for real; where both apply they agree to the
picosecond (``tests/collectives/simulation/engines/test_engines.py``).
"""
