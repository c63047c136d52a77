import torch
from torch.nn import Parameter

from ddp.autograd.unused import FindUnused


def test_what_the_graph_does_not_reach_is_surely_unused_unless_another_forward_pass_may_use_it():
    used, unused = Parameter(torch.ones(2)), Parameter(torch.ones(2))
    readiness = FindUnused([used, unused])

    readiness.forward_ended([used.sum()])
    assert readiness.surely_unused == {1}

    readiness.forward_ended([unused.sum()])
    assert readiness.surely_unused == frozenset()
