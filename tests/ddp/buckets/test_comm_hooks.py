"""Communication hooks that take turns, with futures that are ready when the test says so."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.futures import Future

from ddp.buckets.comm_hooks import CommHook


class Bucket:
    """One element, and what it becomes."""

    def __init__(self) -> None:
        self.parameters = []
        self.contents = torch.zeros(1)

    def accept(self, reduced: torch.Tensor) -> None:
        self.contents.copy_(reduced)


class HookError(Exception):
    """What the hook raises."""


@given(fails=st.lists(st.booleans(), min_size=1, max_size=5), data=st.data())
def test_a_hook_in_turn_is_called_in_the_order_of_buckets_and_each_wait_has_its_own_error(fails, data):
    called = []
    futures = [Future() for _ in fails]

    def hook(state, bucket):
        index = bucket.index()
        assert called == list(range(index)), "those before have been called"
        assert all(futures[own].done() or fails[own] for own in called), "and have done what they do"
        called.append(index)
        if fails[index]:
            raise HookError(f"of bucket {index}")
        return futures[index]

    hooks, buckets, works = CommHook(None, hook, in_turn=True), [Bucket() for _ in fails], []
    for index, bucket in enumerate(buckets):
        if fails[index] and index == 0:  # its turn is at once
            with pytest.raises(HookError, match="of bucket 0"):
                hooks.start(index, index == len(fails) - 1, bucket)
            return
        works.append(hooks.start(index, index == len(fails) - 1, bucket))
    for index in data.draw(st.permutations(range(len(fails))), label="ready in this order"):
        if not fails[index]:
            futures[index].set_result(torch.ones(1) * (index + 1))

    for index in data.draw(st.permutations(range(len(fails))), label="waited for in this order"):
        if fails[index]:
            with pytest.raises(HookError, match=f"of bucket {index}"):
                works[index].wait()
        else:
            works[index].wait()
        assert buckets[index].contents.item() == (0 if fails[index] else index + 1)
    assert called == list(range(len(fails)))
