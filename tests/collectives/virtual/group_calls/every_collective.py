"""Every collective and message of a process group, on tensors of any device."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional


def every_collective(rank, device="cpu"):
    """Return the results of all that the process group of *rank* can do with tensors on *device*."""
    p = dist.get_world_size()
    torch.manual_seed(rank)
    given, wide = torch.randn(6, 5, device=device), torch.randn(p * 6, 5, device=device)
    results = {}

    for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
        results[f"all_reduce {op}"] = tensor = given.clone()
        dist.all_reduce(tensor, op)
    results["bfloat16"] = tensor = given.bfloat16()
    dist.all_reduce(tensor)
    results["integers"] = tensor = torch.arange(7, device=device) * rank
    dist.all_reduce(tensor)
    results["broadcast"] = tensor = given.clone()
    dist.broadcast(tensor, 1)
    results["reduce"] = tensor = given.clone()
    dist.reduce(tensor, 1)
    results["all_gather"] = parts = [torch.zeros(6, 5, device=device) for _ in range(p)]
    dist.all_gather(parts, given)
    results["all_gather_single"] = whole = torch.zeros(p * 6, 5, device=device)
    dist.all_gather_single(whole, given)
    results["reduce_scatter"] = part = torch.zeros(6, 5, device=device)
    dist.reduce_scatter(part, [row + rank for row in wide.view(p, 6, 5)])
    results["reduce_scatter_single"] = part = torch.zeros(6, 5, device=device)
    dist.reduce_scatter_single(part, wide)
    results["gather"] = parts = [torch.zeros(6, 5, device=device) for _ in range(p)] if rank == 0 else None
    dist.gather(given, parts, 0)
    results["scatter"] = part = torch.zeros(6, 5, device=device)
    dist.scatter(part, list(wide.view(p, 6, 5)) if rank == 2 else None, 2)
    results["all_to_all_single"] = whole = torch.zeros(p * 6, 5, device=device)
    dist.all_to_all_single(whole, wide)
    results["all_to_all by parts"] = whole = torch.zeros(p * (rank + 1), device=device)
    dist.all_to_all_single(
        whole, torch.randn(sum(range(p + 1)), device=device), [rank + 1] * p, list(range(1, p + 1))
    )
    results["all_to_all"] = parts = [torch.zeros(rank + 2, device=device) for _ in range(p)]
    dist.all_to_all(parts, [torch.full((other + 2,), float(rank), device=device) for other in range(p)])
    return results | messages_and_objects(rank, p, given, device)


def messages_and_objects(rank, p, given, device):
    results = {}
    results["batch"] = received = torch.zeros(6, 5, device=device)
    right, left = (rank + 1) % p, (rank - 1) % p
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, given, right), dist.P2POp(dist.irecv, received, left)]
    ):
        work.wait()
    results["objects"] = objects = [None] * p
    dist.all_gather_object(objects, {"rank": rank})
    results["from 1"] = one = [f"of {rank}"]
    dist.broadcast_object_list(one, 1)
    pair = dist.new_group([0, p - 1])
    if rank in (0, p - 1):
        results["pair"] = tensor = given.clone()
        dist.all_reduce(tensor, group=pair)
    if dist.get_backend() == "gloo":
        dist.monitored_barrier()
    dist.barrier()
    results["coalesced"] = pair = [given.clone(), 2 * given]
    with dist._coalescing_manager(dist.group.WORLD, torch.device(device), async_ops=True) as calls:
        for tensor in pair:
            dist.all_reduce(tensor)
    calls.wait()
    world = dist.group.WORLD
    results["functional"] = [
        functional.all_reduce(given, "sum", world) + 0,
        functional.broadcast(given, 1, world) + 0,
        *(tensor + 0 for tensor in functional.all_reduce_coalesced([given, 3 * given], "sum", world)),
    ]
    results["future"] = dist.all_reduce(2 * given, async_op=True).get_future().wait()
    return results


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return one == other
