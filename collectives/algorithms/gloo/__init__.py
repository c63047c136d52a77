"""Gloo's own algorithms as programs: what a collective of torch over Gloo does.

Read off Gloo's sources (gloo/allreduce.cc, broadcast.cc, reduce.cc, allgather.cc, gather.cc, scatter.cc,
alltoall.cc, of May 2025) and held to the bytes that each pair of ranks exchanges under torch 2.13.  Torch
leaves the choice of an all-reduce to Gloo, which takes the ring; its other one, bcube, cannot be asked for
by a caller of torch.  A reduce-scatter is torch's: it all-reduces the whole buffer and keeps a part.
Gloo's gather and scatter post everything at once, as `collectives.algorithms.direct` does, and so does its
all-to-all, of which some messages wait for others (`collectives.algorithms.gloo.all_to_all`).

Gloo keeps two segments in flight: it posts a segment as soon as the one before the last has been received.
A program's step ends as a whole, so here two segments are a step.  Where software takes about as long as a
segment on the wire, that hides less of it than Gloo does.
"""
