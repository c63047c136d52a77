"""Progress on calls: a step replayed until collectives go on exactly when its rank calls.

That is for a transport that awaits each step's sends and carries one collective after another, as all ranks
at once can follow.  Buckets that are in flight together are a matter of
`collectives.timing.ranks.called_queue`, event by event.

When a rank calls depends on how long it waits, and that on its collectives, which go on when it calls.  So a
step is replayed again and again, with the calls that the last replay made, until it makes the very calls
that were assumed.  What a replay does up to some time depends on the calls before that time alone; so each
replay is right for longer than the one before it, and the last is right altogether.
"""

from __future__ import annotations

from collections.abc import Callable

from collectives.timing.ranks.attention import Attention
from ddp.simulation.replay import Replay


def on_calls(replay: Callable[[Attention], Replay]) -> Replay:
    """Return the replay whose collectives advance at its own calls, and at no other time.

    Args:
        replay: replays the step with collectives that advance at given times.
    """
    attention = Attention((), 0)
    while True:
        done = replay(attention)
        made = calls_of(done)
        if made == attention:
            return done
        attention = made


def calls_of(replay: Replay) -> Attention:
    """Return when the rank of *replay* called; once its last wait has begun nothing more is computed."""
    waits = [call for call in replay.calls if call[0] < call[1]]
    ends_ps = max((until_ps for _, until_ps in replay.calls), default=0)
    from_ps = waits[-1][0] if waits and waits[-1][1] == ends_ps else ends_ps
    return Attention.of(sorted(replay.calls), from_ps)
