"""Functions that torch builds on plain collectives: objects, messages, meshes, gradients through calls."""

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.nn.functional as differentiable
from torch.distributed.device_mesh import init_device_mesh


def objects(rank: int, world_size: int) -> list[Any]:
    gathered = [None] * world_size
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank})
    on_root = [None] * world_size if rank == 1 else None
    dist.gather_object(("from", rank), on_root, dst=1)
    chosen = [rank, f"of {rank}"]
    dist.broadcast_object_list(chosen, src=1)
    scattered = [None]
    dist.scatter_object_list(scattered, [f"for {peer}" for peer in range(world_size)], src=0)
    received = [None]
    if rank == 0:
        dist.send_object_list([{"any": "thing"}], dst=1)
    elif rank == 1:
        dist.recv_object_list(received, src=0)
    dist.monitored_barrier() if dist.get_backend() == "gloo" else dist.barrier()
    return [gathered, on_root, chosen, scattered, received]


def objects_expected(rank: int, world_size: int) -> list[Any]:
    return [
        [{"rank": peer, "text": "x" * peer} for peer in range(world_size)],
        [("from", peer) for peer in range(world_size)] if rank == 1 else None, [1, "of 1"], [f"for {rank}"],
        [{"any": "thing"}] if rank == 1 else [None],
    ]  # fmt: skip


def messages(rank: int, world_size: int) -> list[Any]:
    """Pass two numbers round a ring in one batch, and answer them by tags in another order."""
    ahead, behind = (rank + 1) % world_size, (rank - 1) % world_size
    one, two = torch.empty(1), torch.empty(2)
    operations = [
        dist.P2POp(dist.isend, torch.tensor([float(rank)]), ahead),
        dist.P2POp(dist.isend, torch.tensor([10.0, rank]), ahead),
        dist.P2POp(dist.irecv, one, behind),
        dist.P2POp(dist.irecv, two, behind),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    tagged = [torch.empty(1), torch.empty(1)]
    sent = [dist.isend(torch.tensor([100.0 * tag + rank]), behind, tag=tag) for tag in (1, 2)]
    for tag in (2, 1):
        dist.recv(tagged[tag - 1], ahead, tag=tag)
    for work in sent:
        work.wait()
    return [one, two, *tagged]


def messages_expected(rank: int, world_size: int) -> list[Any]:
    ahead, behind = (rank + 1) % world_size, (rank - 1) % world_size
    numbers = [[behind], [10, behind], [100 + ahead], [200 + ahead]]
    return [torch.tensor(number, dtype=torch.float32) for number in numbers]


def functional(rank: int, world_size: int) -> list[Any]:
    """Call the functional collectives, by group and by mesh, which wait when their result is used."""
    mesh = init_device_mesh("cpu", (world_size,))
    mine = torch.arange(4.0) + rank
    return [
        funcol.all_reduce(mine, "sum", mesh) + 0,
        funcol.all_reduce(mine, "avg", dist.group.WORLD) + 0,
        funcol.all_gather_tensor(mine, 0, mesh) + 0,
        funcol.reduce_scatter_tensor(mine, "sum", 0, mesh) + 0,
        funcol.broadcast(mine, 1, mesh) + 0,
        funcol.all_to_all_single(mine, None, None, mesh) + 0,
        *(tensor + 0 for tensor in funcol.all_reduce_coalesced([mine, mine * 2], "max", mesh)),
        *(tensor + 0 for tensor in funcol.all_gather_into_tensor_coalesced([mine, mine * 2], mesh)),
        *(
            tensor + 0
            for tensor in funcol.reduce_scatter_tensor_coalesced([mine, mine * 2], "sum", [0, 0], mesh)
        ),
        funcol.permute_tensor(mine, [*range(1, world_size), 0], mesh) + 0,
    ]


def functional_expected(rank: int, world_size: int) -> list[Any]:
    rows = torch.stack([torch.arange(4.0) + peer for peer in range(world_size)])
    total, part = rows.sum(0), slice(rank * 4 // world_size, (rank + 1) * 4 // world_size)
    return [
        total, total / world_size, rows.view(-1), total[part], rows[1], rows[:, part].reshape(-1), rows[-1],
        2 * rows[-1], rows.view(-1), 2 * rows.view(-1), total[part], 2 * total[part],
        rows[(rank - 1) % world_size],
    ]  # fmt: skip


def gradients(rank: int, world_size: int) -> list[Any]:
    gradients = []
    for collective in (
        lambda tensor: differentiable.all_reduce(tensor),
        lambda tensor: torch.stack(differentiable.all_gather(tensor)),
        lambda tensor: differentiable.all_to_all_single(torch.empty(4), tensor),
        lambda tensor: differentiable.reduce_scatter(
            torch.empty(4 // world_size), [part.contiguous() for part in tensor.chunk(world_size)]
        ),
        lambda tensor: differentiable.broadcast(tensor, 0),
    ):
        mine = torch.arange(4.0).requires_grad_()
        (collective(mine) * (rank + 1)).sum().backward()
        gradients.append(mine.grad)
    return gradients


def gradients_expected(rank: int, world_size: int) -> list[Any]:
    """Return what that gives: each element's weight wherever it went."""
    everywhere = sum(range(1, world_size + 1))
    by_part = torch.arange(1.0, world_size + 1).repeat_interleave(4 // world_size)
    return [
        torch.full((4,), float(everywhere)), torch.full((4,), float(everywhere)), by_part, by_part,
        torch.full((4,), everywhere if rank == 0 else 0.0),
    ]  # fmt: skip


def groups_of_a_mesh(rank: int, world_size: int) -> list[Any]:
    """Reduce along the rows and the columns of a mesh, and along all of it."""
    mesh = init_device_mesh("cpu", (2, world_size // 2), mesh_dim_names=("row", "column"))
    sums = []
    for group in (
        mesh.get_group("row"),
        mesh["column"].get_group(),
        mesh["row", "column"]._flatten().get_group(),
    ):
        tensor = torch.tensor([10.0**rank])
        dist.all_reduce(tensor, group=group)
        sums.append(tensor)
    return [mesh.get_coordinate(), *sums]


def groups_of_a_mesh_expected(rank: int, world_size: int) -> list[Any]:
    width = world_size // 2
    row, column = divmod(rank, width)
    return [
        [row, column],
        torch.tensor([sum(10.0 ** (other * width + column) for other in range(2))]),
        torch.tensor([sum(10.0 ** (row * width + other) for other in range(width))]),
        torch.tensor([sum(10.0**other for other in range(world_size))]),
    ]


def sub_groups(rank: int, world_size: int) -> list[Any]:
    """Make sub-groups by every function that torch has for it."""
    sums = []
    halves = [[0, 1], [2, 3]]
    for group in (
        dist.new_subgroups(2)[0],
        dist.new_subgroups_by_enumeration(halves)[0],
        dist.new_group(halves[rank // 2], use_local_synchronization=True),
    ):
        tensor = torch.tensor([10.0**rank])
        dist.all_reduce(tensor, group=group)
        sums.append(tensor)
    return sums


def sub_groups_expected(rank: int, world_size: int) -> list[Any]:
    return [torch.tensor([11.0 if rank < 2 else 1100.0])] * 3


def coalesced(rank: int, world_size: int) -> list[Any]:
    """Put several collectives together, and messages."""
    tensors = [torch.full((2,), rank + 1.0), torch.full((3,), 10.0 * rank)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    received = torch.empty(2)
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        dist.isend(torch.full((2,), float(rank)), (rank + 1) % world_size)
        dist.irecv(received, (rank - 1) % world_size)
    manager.wait()
    return [*tensors, received]


def coalesced_expected(rank: int, world_size: int) -> list[Any]:
    ranks = range(world_size)
    return [
        torch.full((2,), sum(peer + 1.0 for peer in ranks)),
        torch.full((3,), sum(10.0 * peer for peer in ranks)),
        torch.full((2,), float((rank - 1) % world_size)),
    ]
