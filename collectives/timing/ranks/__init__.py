"""Ranks: each rank by itself, event by event, as live ranks go; the reference for rows.

rank_by_rank    engine ranks (open first)
attention       when ranks that compute look after their collectives
called_queue    collectives that go on when their ranks call
simulated_port  a rank's side of the meeting point
step_in_flight  a step of a program, and what it awaits by the rule of a transport
sends_under_way what has been sent and not yet taken
meeting_point   where ranks post their messages, and these are matched
"""
