"""Claims on buckets and overlap: what they save, how much they hide, and what is left to pay."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from benchmarks.lab.claims.claim import Case, Claim, Finding
from benchmarks.lab.claims.setups import (
    BERT,
    CAP_MB,
    EXPECTED_IN_WORDS,
    MODELS_IN_WORDS,
    PLACES,
    PLACES_IN_WORDS,
    PROFILES,
    RESNET,
    Training,
    expected_of,
    step,
)
from testbed.output.table import counted, percent, seconds

CAPS_MB = (1.0, 5.0, 10.0, CAP_MB, 50.0, 100.0, 200.0)
NEAR_BEST = 1.05
WORTH_WHILE = 0.01
SHARES = (Fraction(20, 100), Fraction(25, 100), Fraction(30, 100))
SHARE_RANKS, SHARE_LATENCY = 16, "2us"
PASSES = 4

BUCKETS = Claim(
    "C1",
    "Buckets of about 25 MB replace N all-reduces, one per parameter, by B, one per bucket, and cut "
    "communication overhead; 25 MB is near the best for most models.",
)
HIDDEN = Claim(
    "C2", "With reverse-order buckets 50 to 80 % of the communication is hidden behind the backward pass."
)
SHARE = Claim("C3", "Overlap brings communication from 20 to 30 % of the iteration down to 5 to 15 %.")
COST = Claim(
    "C4",
    "Well-overlapped DDP costs less than 10 % over one GPU; poorly overlapped (small model, slow network) "
    "50 to 100 %.",
)
ACCUMULATION = Claim("C8", "Gradient accumulation over K steps with no_sync cuts all-reduces by K.")


def trainings() -> Iterator[Training]:
    """Yield every model in every place."""
    return (Training(model, place) for place in PLACES for model in PROFILES)


def buckets() -> Finding:
    """Compare buckets of 25 MiB with one all-reduce per parameter, and with buckets of other sizes."""
    cases = []
    for training in trainings():
        bucketed = expected_of(training)
        single = expected_of(Training(training.model, training.place, "per_parameter"))
        times = {
            cap: expected_of(Training(training.model, training.place, cap_mb=cap)).seconds for cap in CAPS_MB
        }
        best = min(times, key=lambda cap: times[cap])
        above_best = bucketed.seconds / times[best] - 1
        saved = 1 - bucketed.seconds / single.seconds
        cases.append(
            Case(
                training.where(),
                f"{single.num_buckets} to {counted(bucketed.num_buckets, 'call')}, step {_shorter(saved)}, "
                f"{percent(above_best)} above the best cap ({best:g} MiB)",
                saved >= WORTH_WHILE and bucketed.seconds <= NEAR_BEST * times[best],
                {
                    "calls_per_parameter": single.num_buckets,
                    "calls_in_buckets": bucketed.num_buckets,
                    "step_saved": saved,
                    "best_cap_mb": best,
                    "above_best": above_best,
                },
            )
        )
    caps = ", ".join(f"{cap:g}" for cap in CAPS_MB)
    return Finding(
        BUCKETS,
        f"strategies wait_free and per_parameter, caps of {caps} MiB; {EXPECTED_IN_WORDS}; "
        f"{PLACES_IN_WORDS}; {MODELS_IN_WORDS}",
        "simulated",
        "the step is at least 1 % shorter than with one all-reduce per parameter, and at most 5 % longer "
        "than with the best cap",
        tuple(cases),
    )


def _shorter(saved: float) -> str:
    return f"{percent(abs(saved))} {'shorter' if saved >= 0 else 'longer'}"


def hidden() -> Finding:
    """Compare what is exposed with overlap to what is without."""
    cases = []
    for training in trainings():
        without = step(Training(training.model, training.place, "after_backward")).exposed_seconds
        exposed = step(training).exposed_seconds
        part = 1 - exposed / without
        cases.append(
            Case(
                training.where(),
                f"{percent(part)} of {seconds(without)} hidden",
                part >= 0.5,
                {"hidden": part, "communication_seconds": without, "exposed_seconds": exposed},
            )
        )
    return Finding(
        HIDDEN,
        f"strategies wait_free and after_backward, buckets of 25 MiB; {PLACES_IN_WORDS}; {MODELS_IN_WORDS}",
        "simulated",
        "at least 50 % is hidden: 1 - exposed (wait_free) / exposed (after_backward)",
        tuple(cases),
        "More than 80 % counts as holding.",
    )


def share() -> Finding:
    """Give the network the rate at which communication is a stated share without overlap; then overlap."""
    from ddp import simulate_step
    from ddp.profiles import load_profile
    from sim import Topology

    cases = []
    for model, name in PROFILES.items():
        profile = load_profile(name)
        for wanted in SHARES:
            rate = _rate_for(model, wanted)
            topology = Topology.switch(num_ranks=SHARE_RANKS, bandwidth=rate, latency=SHARE_LATENCY)
            before, after = (
                simulate_step(profile, topology=topology, strategy=strategy, bucket_cap_mb=CAP_MB)
                for strategy in ("after_backward", "wait_free")
            )
            shares = [run.exposed_seconds / run.seconds for run in (before, after)]
            cases.append(
                Case(
                    {"share": f"from {percent(float(wanted))}", "model": f"with {model}"},
                    f"to {percent(shares[1])}, at {rate * 8 / 1e9:,.0f} Gb/s a rank",
                    shares[1] <= 0.15,
                    {"before": shares[0], "after": shares[1], "bytes_per_second": rate},
                )
            )
    return Finding(
        SHARE,
        f"{SHARE_RANKS} ranks on one switch, whose rate is chosen such that communication is 20, 25 and 30 "
        f"% of the step with after_backward; then wait_free; buckets of 25 MiB; {MODELS_IN_WORDS}",
        "simulated",
        "with overlap at most 15 % of the step is communication that computation waits for",
        tuple(cases),
    )


def _rate_for(model: str, wanted: Fraction) -> int:
    """Return the rate in bytes/s at which communication behind the backward pass is *wanted* of the step.

    One all-reduce after another takes a + b / rate, a line through two rates.
    """
    from ddp import simulate_step
    from ddp.profiles import load_profile
    from sim import Topology

    profile = load_profile(PROFILES[model])

    def exposed_ps(rate: int) -> int:
        topology = Topology.switch(num_ranks=SHARE_RANKS, bandwidth=rate, latency=SHARE_LATENCY)
        run = simulate_step(profile, topology=topology, strategy="after_backward", bucket_cap_mb=CAP_MB)
        return run.time_ps - run.compute_ps

    slow, fast = 10**9, 10**11
    at_slow, at_fast = exposed_ps(slow), exposed_ps(fast)
    per_rate = Fraction(at_slow - at_fast) / (Fraction(1, slow) - Fraction(1, fast))
    fixed = at_slow - per_rate / slow
    target = profile.compute_ps * wanted / (1 - wanted)
    return round(per_rate / (target - fixed))


def cost() -> Finding:
    """Ask what data-parallel training adds to the step of one GPU, with overlap and without."""
    cases = []
    for training in trainings():
        for overlapped in (True, False):
            timed = training if overlapped else Training(training.model, training.place, "after_backward")
            added, ideally = (1 / run.efficiency - 1 for run in (expected_of(timed), step(timed)))
            poor = not overlapped and training.model == RESNET and "Ethernet" in training.place.name
            if not overlapped and not poor:
                continue
            cases.append(
                Case(
                    {
                        "overlap": "without overlap" if poor else "with overlap",
                        **training.where(),
                    },
                    f"+{percent(added)} (ideally +{percent(ideally)})",
                    added >= 0.5 if poor else added < 0.1,
                    {"added": added, "added_ideally": ideally},
                )
            )
    return Finding(
        COST,
        "wait_free everywhere; after_backward for the small model on slow networks; buckets of 25 MiB; "
        f"{EXPECTED_IN_WORDS}; {PLACES_IN_WORDS}; {MODELS_IN_WORDS}",
        "simulated",
        "with overlap the step takes less than 10 % longer than on one GPU; without, the small model on "
        "Ethernet takes at least 50 % longer",
        tuple(cases),
    )


def accumulation() -> Finding:
    """Count the all-reduces of K passes with and without accumulation, and what they add to a pass."""
    cases = []
    for place in PLACES:
        every, summed = (
            step(Training(BERT, place, strategy)) for strategy in ("wait_free", f"accumulate:k={PASSES}")
        )
        calls = PASSES * len(every.buckets), len(summed.buckets)
        per_pass = every.exposed_seconds, summed.exposed_seconds / PASSES
        cases.append(
            Case(
                {"network": f"on {place.name}"},
                f"{calls[0]} to {calls[1]} calls in {PASSES} passes, exposed in each "
                f"{seconds(per_pass[0])} to {seconds(per_pass[1])}",
                calls[0] == PASSES * calls[1],
                {
                    "calls_every_pass": calls[0],
                    "calls_accumulated": calls[1],
                    "exposed_seconds_every_pass": per_pass[0],
                    "exposed_seconds_accumulated": per_pass[1],
                },
            )
        )
    return Finding(
        ACCUMULATION,
        f"strategies wait_free and accumulate:k={PASSES}, BERT-large, buckets of 25 MiB; {PLACES_IN_WORDS}",
        "simulated",
        f"{PASSES} passes launch {PASSES} times as many all-reduces without accumulation as with it",
        tuple(cases),
    )
