"""Long work: spread over workers, with an end after Ctrl-C, SIGTERM or a limit of time.

spread    tasks on processes or on Dask's workers          workers   processes, forked from one
bounds    an end before the end, with what is there
"""
