"""Long work: spread over workers, with an end after Ctrl-C, SIGTERM or a limit of time.

spread    tasks on processes or on Dask's workers          workers   processes, forked from one
bounds    an end before the end, with what is there
"""

from testbed.tasks.bounds import Stop, TimeUp, bounded, terminated_in_order
from testbed.tasks.spread import cores, results

__all__ = ["Stop", "TimeUp", "bounded", "cores", "results", "terminated_in_order"]
