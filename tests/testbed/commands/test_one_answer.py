"""One question has one answer: whatever command or function is asked, the picoseconds are the same."""

import itertools

import pytest
import torch
import torch.distributed as dist
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collectives import Assumptions, CollectiveError, UnknownAlgorithmError, simulate
from collectives.virtual import Roofline, run
from ddp import load_profile, simulate_step
from sim import LinkChange, LinkFailure, RankError, load_network
from testbed.options.conditions import parse_straggler
from tests import commands

NETWORKS = st.sampled_from(
    ["switch-100g", "ethernet-10g", "ethernet-25g", "dgx-a100", "dgx-h100", "aws-p6-b200"]
)


def rows_of(command, **options):
    """Return the rows that *command* answers with; an option that is true stands by itself."""
    words = [
        word
        for name, value in options.items()
        for word in (f"--{name.replace('_', '-')}", *([] if value is True else [value]))
    ]
    return commands.rows_of(command, *words)


def assumed_by(options):
    """Return what *options* of a command line assume, for Python; None: as in a real run."""
    counted = {name: value for name, value in options.items() if name != "ideal"}
    return Assumptions.ideal(**counted) if options.get("ideal") else None


ASSUMED = st.fixed_dictionaries(
    {},
    optional={"transport_model": st.sampled_from(["gloo", "nccl", "ideal"]), "ideal": st.just(True)},
)


@settings(deadline=None, max_examples=settings.default.max_examples // 10)
@given(
    NETWORKS,
    st.sampled_from([2, 4, 8, 16]),
    st.sampled_from(
        [
            *itertools.product(["resnet50", "bert-base"], ["wait_free", "after_backward"]),
            ("resnet50", "priority"),  # whose many messages over Gloo cost seconds where a model is larger
        ]
    ),
    st.sampled_from([None, "ring", "tree"]),
    st.sampled_from([4.0, 25.0]),
    ASSUMED,
)
@example("ethernet-25g", 4, ("resnet50", "wait_free"), "native", 25.0, {})
@example("dgx-h100", 8, ("resnet50", "wait_free"), "native", 25.0, {})
@example("dgx-h100", 8, ("resnet50", "wait_free"), None, 25.0, {"transport_model": "gloo"})
@example("dgx-h100", 8, ("resnet50", "wait_free"), None, 25.0, {"transport_model": "nccl", "ideal": True})
@example(
    "ethernet-25g", 32, ("resnet50", "wait_free"), None, 25.0, {"transport_model": "gloo", "ideal": True}
)
@example("ethernet-25g", 8, ("resnet50", "wait_free"), "direct", 25.0, {"transport_model": "ideal"})
@example("dgx-h100", 16, ("resnet50", "wait_free"), "nvls", 25.0, {})
def test_a_step_takes_the_same_by_scale_plan_and_in_python(
    network,
    ranks,
    trained,
    algorithm,
    cap,
    assumed,
):
    model, strategy = trained
    chosen = assumed if algorithm is None else {**assumed, "algorithm": algorithm}
    asked = {"profile": model, "network": network, "ranks": ranks, "strategy": strategy, "bucket_cap_mb": cap}

    (scaled,) = rows_of("scale", **asked, **chosen)
    (planned,) = rows_of("plan", cache="none", workers=1, **asked, **chosen)
    step = simulate_step(
        load_profile(model),
        network=network,
        num_ranks=ranks,
        strategy=strategy,
        bucket_cap_mb=cap,
        algorithm=algorithm,
        assumptions=assumed_by(assumed),
        **({} if assumed.get("ideal") else assumed),
    )

    assert scaled["seconds"] == planned["seconds"] == step.seconds


@pytest.mark.costly
@settings(deadline=None, max_examples=2)
@given(st.sampled_from(["ethernet-25g", "dgx-h100"]), st.sampled_from([2, 8]))
def test_a_step_that_is_tuned_takes_what_it_is_scaled_to(network, ranks):
    asked = {"profile": "resnet50", "network": network, "ranks": ranks, "strategy": "wait_free"}

    (scaled,) = rows_of("scale", **asked)
    tuned = [row for row in rows_of("tune", **asked) if row["bucket_cap_mb"] == 25.0]

    assert [row["seconds"] for row in tuned] == [scaled["seconds"]]


@settings(deadline=None, max_examples=settings.default.max_examples // 4)
@given(
    NETWORKS,
    st.sampled_from([2, 8, 16]),
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"]),
    st.sampled_from(["auto", "nccl"]),
    st.integers(0, 14),
    ASSUMED,
)
@example("dgx-h100", 16, "all_reduce", "ring", 14, {"transport_model": "nccl", "ideal": True})
@example("ethernet-25g", 8, "all_reduce", "direct", 14, {"transport_model": "gloo", "ideal": True})
@example("ethernet-25g", 8, "all_reduce", "direct", 14, {"transport_model": "ideal"})
def test_a_collective_takes_the_same_by_simulate_bench_plan_and_in_python(
    network, ranks, collective, algorithm, doublings, assumed
):
    nbytes = 2**doublings * 4096
    if algorithm == "nccl" and not network.startswith(("dgx", "aws")):
        algorithm = "auto" if assumed else "native"  # which is Gloo's, over no other transport
    asked = {"network": network, "ranks": ranks, "collective": collective, **assumed}

    (simulated,) = rows_of(f"simulate {algorithm}", nbytes=nbytes, **asked)
    (timed,) = rows_of("bench --transport sim --dtype uint8", sizes=nbytes, algorithm=algorithm, **asked)
    (planned,) = rows_of("plan", nbytes=nbytes, algorithm=algorithm, cache="none", workers=1, **asked)
    run = simulate(
        algorithm,
        nbytes=nbytes,
        network=network,
        num_ranks=ranks,
        collective=collective,
        assumptions=assumed_by(assumed),
        **({} if assumed.get("ideal") else assumed),
    )

    assert simulated["time_ps"] == run.time_ps
    assert simulated["seconds"] == timed["seconds"] == planned["seconds"] == run.seconds


@pytest.mark.parametrize("network", ["ethernet-25g", "dgx-h100"])
def test_ports_of_an_ideal_network_lose_nothing_in_a_run_either(network, tmp_path):
    script = tmp_path / "once.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group()\n"
        "dist.all_reduce(torch.zeros(2**18))\n"
    )
    asked = {"network": network, "ranks": 32, "ideal": True}

    (simulated,) = rows_of("simulate direct", nbytes="1M", **asked)
    words = ["--algorithm", "direct", "--network", network, "--ranks", "32", "--ideal", str(script)]

    assert commands.reported("run", *words)["seconds"] == simulated["seconds"]


STATED = st.fixed_dictionaries(
    {}, optional={"step_overhead": st.just("3us"), "posting": st.just("2us"), "overhead": st.just("1us")}
)


@settings(deadline=None, max_examples=settings.default.max_examples // 4)
@given(
    st.sampled_from(["dgx-h100", "aws-p4d"]),
    st.sampled_from(["ring", "FILE.xml", "mapping", "direct"]),
    st.sampled_from([range(16), range(8), range(4, 12), range(0, 16, 2)]),
    st.booleans(),
    STATED,
    st.integers(0, 11),
)
@example("dgx-h100", "FILE.xml", range(16), False, {"step_overhead": "3us"}, 8)
@example("dgx-h100", "mapping", range(16), True, {"step_overhead": "3us"}, 8)
def test_so_does_a_program_in_a_group_on_either_device_with_what_is_stated(
    tmp_path_factory,
    network,
    choice,
    hosts,
    on_gpu,
    stated,
    doublings,
):
    size, nbytes = len(hosts), 2**doublings * 4096
    topology = load_network(network).topology(16)
    assumed = Assumptions.ideal(transport_model="ideal", **stated)
    chosen = choice
    if choice in ("FILE.xml", "mapping"):  # thread blocks count over no ideal transport
        path = tmp_path_factory.mktemp("programs") / "ring.xml"
        commands.called(f"export ring --format msccl --ranks {size} --output {path}")
        chosen = str(path) if choice == "FILE.xml" else {"all_reduce": str(path), "all_gather": "direct"}

    def took(calls):
        def script(rank):
            dist.init_process_group("nccl")
            group = dist.new_group(list(hosts))
            if rank in hosts:
                for _ in range(calls):
                    dist.all_reduce(torch.empty(nbytes, dtype=torch.uint8, device=device), group=group)
                torch.cuda.synchronize()

        device, compute = ("cuda", Roofline("h100")) if on_gpu else ("cpu", None)
        done = run(
            script, network=topology, algorithm=chosen, assumptions=assumed, compute=compute, fake=on_gpu
        )
        return max(done.times_ps)

    named = chosen["all_reduce"] if choice == "mapping" else chosen
    alone = simulate(named, nbytes=nbytes, topology=topology, placement=tuple(hosts), assumptions=assumed)
    if not on_gpu:
        assert took(1) == alone.time_ps
    elif alone.time_ps > 10**8:  # beyond what a host takes to issue a call
        assert took(9) - took(8) == alone.time_ps


@pytest.mark.parametrize("command", ["simulate", "bench", "tune"])
@pytest.mark.parametrize(
    ("algorithm", "counted"), [("nccl", ()), ("ring", ("3.3us", "1.7us")), ("nccl,ring", ("3.3us", "1.7us"))]
)
def test_launches_are_told_where_they_count(command, algorithm, counted):
    how = {
        "simulate": f"simulate {algorithm} --nbytes 1M",
        "bench": f"bench --transport sim --nbytes 1M --algorithm {algorithm}",
        "tune": f"tune --profile resnet50 --algorithm {algorithm}",
    }[command]
    line = f"{how} --network dgx-h100 --ranks 16 --step-overhead 3.3us --posting 1.7us"

    text, document = commands.called(line).stdout, commands.reported(line)
    (on,) = document["assumptions"]["on"].values()

    assert [word for word in ("3.3us", "1.7us") if word in text] == list(counted)
    assert [on[name] or None for name in ("step_overhead", "posting")] == list(counted or (None, None))


def once(collective, ranks, nbytes):
    """Return a script that makes one call of *collective*."""

    def script(rank):
        dist.init_process_group("nccl")
        whole, part = (torch.zeros(count, dtype=torch.uint8) for count in (nbytes, nbytes // ranks))
        if collective == "all_reduce":
            dist.all_reduce(whole)
        elif collective == "all_gather":
            dist.all_gather_into_tensor(whole, part)
        elif collective == "reduce_scatter":
            dist.reduce_scatter_tensor(part, whole)
        elif collective == "gather":
            dist.gather(part, list(whole.chunk(ranks)) if rank == 0 else None)
        else:
            dist.all_to_all_single(whole, torch.zeros_like(whole))

    return script


CALLS = st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "gather"])


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")
@settings(deadline=None, max_examples=settings.default.max_examples // 4)
@given(NETWORKS, st.sampled_from([2, 8, 16]), CALLS, st.sampled_from([None, "auto"]), st.integers(0, 14))
def test_so_does_a_run_of_a_script_that_does_that_one_call(network, ranks, collective, algorithm, doublings):
    nbytes = 2**doublings * 4096
    topology = load_network(network).topology(ranks)
    assumed = Assumptions.of_a_real_run(topology)
    chosen = algorithm or assumed.algorithm

    took = run(once(collective, ranks, nbytes), network=topology, algorithm=chosen, assumptions=assumed)

    alone = simulate(chosen, nbytes=nbytes, network=network, num_ranks=ranks, collective=collective)
    assert took.seconds == alone.seconds


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")
@settings(deadline=None, max_examples=settings.default.max_examples // 4)
@given(
    NETWORKS,
    CALLS,
    st.sampled_from(["nccl", "native", "auto", "direct"]),
    st.fixed_dictionaries(
        {},
        optional={
            "model": st.sampled_from(["links", "library"]),
            "protocol": st.sampled_from(["LL", "Simple"]),
            "overhead": st.just("1us"),
            "reduction_bandwidth": st.just("200GB/s"),
            "step_overhead": st.just("3us"),
        },
    ),
)
@example("dgx-h100", "gather", "nccl", {"overhead": "1us"})
@example("ethernet-25g", "all_to_all", "direct", {"model": "library"})
@example("ethernet-25g", "all_reduce", "nccl", {"model": "library"})
def test_what_a_run_refuses_so_does_simulate(network, collective, algorithm, counted):
    def answered(ask):
        try:
            return ask().seconds
        except (CollectiveError, RankError, ValueError):
            return None

    asked = {"network": load_network(network), "num_ranks": 8, "collective": collective, **counted}
    alone = answered(lambda: simulate(algorithm, nbytes=8192, **asked))

    chosen = algorithm if algorithm != "direct" else {collective: algorithm}
    script = once(collective, 8, 8192)
    assert answered(lambda: run(script, 8, network, algorithm=chosen, **counted)) == alone


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")
@pytest.mark.parametrize("place", [("dgx-h100", 8), ("dgx-a100", 16)], ids=str)
@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "all_to_all"])
@settings(deadline=None, max_examples=settings.default.max_examples // 20)
@given(st.sampled_from([0, 5, 15]), st.sampled_from([0.03, 0.5]), st.sampled_from(["1:2", "1:+40us", ""]))
@example(5, 0.0, "")
def test_links_change_under_a_call_of_the_library_as_they_do_in_a_run(
    place, collective, from_us, factor, slow
):
    network, ranks = place
    at = f"{from_us}us"
    link = LinkChange(8, at, factor) if factor else LinkFailure(8, at, reroute=True)
    held = [link, *([parse_straggler(slow)] if slow else [])]

    took = run(once(collective, ranks, 65536), ranks, network, algorithm="nccl", conditions=held)

    asked = {"network": network, "num_ranks": ranks, "collective": collective}
    alone = simulate("nccl", nbytes=65536, conditions=held, **asked)
    assert took.seconds == alone.seconds


def test_reduction_in_the_switches_has_no_messages_for_a_run():
    with pytest.raises(UnknownAlgorithmError, match="nvls is reduction in the switches"):
        run(once("all_reduce", 8, 4096), 8, "dgx-h100", algorithm="nvls")
