"""Times that DDP logs, of a clock that counts."""

from ddp.autograd.observation.iteration_times import IterationTimes


def test_times_are_those_of_the_latest_iteration_that_was_looked_at_and_over_at_a_forward_pass():
    clock = iter(range(0, 10**9, 1000))
    times = IterationTimes(lambda: next(clock))
    times.rate = 4
    iterations, lengths = [], []
    for _ in range(14):
        times.begin()
        iterations.append(times.rows()["iteration"])
        for stamp in ("backward_began", "first_launch", "last_gradient", "last_reduced"):
            times.last(stamp)
        rows = times.rows()
        lengths.append((rows["iteration"], rows["backward_comm_time"], rows["avg_backward_comm_time"]))
    assert iterations == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 12, 12]
    expected = [(number, 2, 2) for number in iterations]
    assert lengths == [(0, 0, 0), *expected[1:]]
