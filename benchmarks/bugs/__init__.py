"""Benchmark of what finds bugs in distributed scripts: pairs of small torch scripts, wrong and right.

    python -m benchmarks.bugs                                # all pairs, by `testbed run`
    python -m benchmarks.bugs --only missing_wait,wrong_tag  # these
    python -m benchmarks.bugs --with testbed,gloo,detail     # beside processes; writes docs/bugs.md

The wrong half of a pair makes one mistake, which its docstring names, with its class and what a tool has to
name: the rank and the line.  The right half is the same script without it.  A tool *hits* if it says of the
wrong half that something is wrong, and gives a *false alarm* if it says so of the right one.  Fourteen
classic mistakes, of which docs/diagnoses.md tells, have their wrong half in examples/mistakes.

The first seven classes are those of the MPI Bugs Initiative, as far as torch.distributed has what they are
about (Laurent, Saillard and Quinson, "The MPI Bugs Initiative: a framework for MPI verification tools
evaluation", Correctness 2021); the others are those of data-parallel training.

    pairs      the scripts, and what their docstrings say (open first)
    verdict    what a tool has said of a script, and whether that is what it should
    virtual    `testbed run`
    processes  real processes over Gloo, with and without TORCH_DISTRIBUTED_DEBUG=DETAIL
    page       docs/bugs.md
"""
