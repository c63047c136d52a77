"""Routing in a run without data: which experts are chosen is known, and what follows from that."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from collectives import NotSupportedError
from collectives.virtual.gpu.routing import Routing, RoutingRecord, dealt_out, typical
from collectives.virtual.memory.held_storage import Moment
from sim import RankError
from tests.collectives.virtual.issued import on_own_gpus


def _run(work: Callable[[], Any], routing="power-law:1.2", **options):
    return on_own_gpus(work, routing=routing, **options)


def _tokens_of(experts: Tensor, number: int = 8) -> list[int]:
    return experts.flatten().bincount(minlength=number).tolist()


def _chosen(tokens: int = 6000, experts: int = 8, chosen: int = 2) -> Tensor:
    return torch.randn(tokens, experts, device="cuda").softmax(-1).topk(chosen)[1]


@pytest.mark.parametrize(
    ("rows", "tokens", "chosen"), [([1] * 8, 6, 2), ([9, 1, 1, 1], 5, 3), ([0, 0, 1], 4, 2), ([5, 3], 7, 1)]
)
def test_each_token_goes_to_different_experts(rows, tokens, chosen):
    experts = dealt_out(rows, tokens, chosen)

    assert experts.shape == (tokens, chosen)
    assert all(len(set(of_token)) == chosen for of_token in experts.tolist())


@pytest.mark.parametrize(("tokens", "chosen"), [(64, 2), (24, 6), (8, 1)])
def test_balanced_tokens_are_as_many_for_every_expert(tokens, chosen):
    counts = _run(lambda: _tokens_of(_chosen(tokens, 8, chosen)), "balanced")

    assert counts.results == [[tokens * chosen // 8] * 8]


_COUNTS: dict[str, Callable[[Tensor], Tensor]] = {
    "bincount": lambda experts: experts.flatten().bincount(minlength=8),
    "histc": lambda experts: experts.flatten().histc(bins=8, min=0, max=8),
    "one hot": lambda experts: F.one_hot(experts, 8).sum((0, 1)),
    "comparisons": lambda experts: torch.stack([(experts == expert).sum() for expert in range(8)]),
    "sorted": lambda experts: experts.flatten().sort()[0].unique_consecutive(return_counts=True)[1],
    "where": lambda experts: torch.stack([torch.tensor(len(torch.where(experts == e)[0])) for e in range(8)]),
}


@pytest.mark.parametrize("way", _COUNTS)
def test_counts_of_tokens_are_known_however_a_script_counts(way):
    def work():
        experts = _chosen()
        return _COUNTS[way](experts).tolist(), _tokens_of(experts.cpu())

    own, plain = _run(work).results[0]

    assert own == plain
    assert sum(own) == 12000
    assert max(own) > min(own)


def test_rows_that_a_known_mask_selects_have_a_shape_and_no_values():
    def work():
        tokens, experts = torch.randn(6000, 16, device="cuda"), _chosen()
        mask = (experts == 3).any(-1)
        rows = tokens[mask] @ torch.randn(16, 4, device="cuda")
        return rows.shape[0], int(mask.sum()), bool(rows.sum().isnan())

    (rows, selected, _), *_ = _run(work).results

    assert rows == selected > 0


def test_a_run_says_how_uneven_experts_were_or_that_nobody_asked_for_routing():
    def by_experts():
        torch.randn(64, 8, device="cuda").topk(16, dim=0)

    def notices(work, routing):
        return " ".join(_run(work, routing).report.notices)

    assert "busiest expert over the mean, by step: 1.00" in notices(_chosen, "balanced")
    assert "busiest expert over the mean" in notices(_chosen, "power-law:1.2")
    assert "--routing balanced has changed nothing" in notices(lambda: None, "balanced")
    assert "where experts choose tokens, goes by no --routing" in notices(by_experts, "balanced")


class _Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList((_Layer(), _Layer()))

    def forward(self, tokens: Tensor) -> list[list[int]]:
        one, other = self.layers
        return [one(tokens).tolist(), other(tokens).tolist(), other(tokens).tolist()]


class _Layer(nn.Module):
    def forward(self, tokens: Tensor) -> Tensor:
        return tokens.softmax(-1).topk(2)[1].flatten().bincount(minlength=8)


def test_shares_differ_by_router_and_iteration_and_are_those_of_any_run():
    def work():
        model = _Layers()
        weight = nn.Parameter(torch.zeros(1, device="cuda"))
        optimizer, found = torch.optim.SGD([weight], 0.1), []
        for _ in range(2):
            tokens = torch.randn(64, 8, device="cuda")
            found += model(tokens)
            (weight * tokens.sum()).sum().backward()
            optimizer.step()
        return found

    one, other = _run(work).results[0], _run(work).results[0]

    assert one == other
    assert one[1] == one[2]
    assert one[4] == one[5]
    assert len({tuple(counts) for counts in one}) == 4


def _layer_of_numbers() -> list[list[int]]:
    tokens = torch.arange(64 * 8, device="cuda").reshape(64, 8).mul(37).remainder(101).float()
    return [nn.Sequential(_Layer())(tokens).tolist()]


def _groups_and_experts() -> list[list[int]]:
    torch.manual_seed(0)
    return [_tokens_of(_chosen(experts=number), number) for number in (4, 16)]


@pytest.mark.parametrize(
    ("work", "routers"), [(_layer_of_numbers, ["0"]), (_groups_and_experts, ["", " of 16"])]
)
def test_a_routing_that_is_recorded_is_that_of_a_run_without_data(tmp_path, work, routers):
    record, path = RoutingRecord(), tmp_path / "routing.json"
    with_data = _run(work, record, fake=False).results
    record.save(path)

    assert _run(work, path).results == _run(work, Routing.parse(path)).results == with_data
    rows = {name: [row] for name, row in zip(routers, with_data[0], strict=True)}
    assert json.loads(path.read_text()) == {"schema": 1, "routers": rows}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("even", "expected balanced, power-law:A"),
        ("power-law:0", "expected an exponent above 0"),
        ("power-law:x", "expected an exponent above 0"),
        ('{"schema": 1, "routers": {}}', "routers"),
        ('{"schema": 1, "routers": {"0": [[1, -2]]}}', "greater than or equal to 0"),
        ('{"schema": 2, "routers": {"0": [[1]]}}', "schema"),
    ],
)
def test_a_name_or_a_file_that_is_no_routing_is_refused_with_what_is(tmp_path, given, says):
    path = tmp_path / "routing.json"
    path.write_text(given)

    with pytest.raises(NotSupportedError, match=says):
        Routing.parse(path if given.startswith("{") else given)


@pytest.mark.parametrize(
    ("routers", "says"),
    [
        ({"1": [[1, 2, 3]]}, "record the routing of this model"),
        ({"0": [[1, 2, 3]]}, "record the routing of this model"),
        ({"0": [[0] * 8]}, "router '0' has no tokens in a row"),
    ],
    ids=["another router", "other experts", "no tokens"],
)
def test_a_file_of_another_model_is_refused_with_its_router(tmp_path, routers, says):
    path = tmp_path / "routing.json"
    path.write_text(json.dumps({"schema": 1, "routers": routers}))

    with pytest.raises(RankError, match=says):
        _run(_layer_of_numbers, path)


def test_routing_that_nobody_states_is_balanced_and_said_to_be_an_assumption():
    done = _run(lambda: _tokens_of(_chosen(64)), None)

    assert done.results == [[16] * 8]
    assert any("--routing balanced" in notice and "an assumption" in notice for notice in done.report.notices)


@pytest.mark.parametrize("routing", ["balanced", RoutingRecord()])
def test_routing_is_refused_where_it_says_nothing(routing):
    with pytest.raises(NotSupportedError, match="routing is stated for a run without data"):
        _run(_chosen, routing, fake=routing != "balanced")


def test_layers_that_stand_for_others_all_draw_as_one_whose_busiest_rank_has_about_the_mean_of_all():
    routing = Routing("power-law:1.2", 1.2, layers=lambda: 24, ranks=4)

    drawn = [routing._rows(64, 16, 2, Moment(2, "forward", f"blocks.{number}.gate")) for number in range(3)]
    own = [
        Routing("power-law:1.2", 1.2)._rows(64, 16, 2, Moment(2, "forward", f"blocks.{number}.gate"))
        for number in range(24)
    ]

    assert drawn[0] == drawn[1] == drawn[2] == typical(own, 4)
    busiest = [max(sum(rows[first : first + 4]) for first in range(0, 16, 4)) for rows in own]
    mean = sum(busiest) / 24
    chosen = busiest[own.index(drawn[0])]
    assert abs(chosen - mean) == min(abs(one - mean) for one in busiest)
