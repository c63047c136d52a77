"""Resolution of what a user writes (a name, parameters, a function, a file) to an `Algorithm`."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Collection
from pathlib import Path
from typing import Any

from collectives.algorithms import ALGORITHMS, NATIVE_ALGORITHMS
from collectives.algorithms.shared.halves import Halves
from collectives.catalogue.user_files import load_program
from collectives.catalogue.values import read_value
from collectives.errors import UnknownAlgorithmError
from collectives.program import Algorithm, Program
from collectives.program.channels import CHANNEL_PARAMETERS, in_channels
from collectives.program.contracts import CONTRACTS

_KNOWN = (*ALGORITHMS, *NATIVE_ALGORITHMS)


def algorithm_names(collective: str = "all_reduce") -> tuple[str, ...]:
    """Return the names of the shipped algorithms for *collective*."""
    return tuple(shipped.name for shipped in ALGORITHMS if shipped.collective == collective)


def resolve_algorithm(algorithm: str | Program | Algorithm, collective: str = "all_reduce") -> Algorithm:
    """Return the algorithm that *algorithm* means.

    Args:
        algorithm: a name (``ring``), a name with parameters (``tree:root=1``), a program in a
            file (``FILE.py:FUNCTION``), a file of MSCCL XML (``FILE.xml``) or with a schedule
            (``FILE.json``), a program, or an `Algorithm`.
        collective: which collective it is for.

    Raises:
        UnknownAlgorithmError: there is none of that name; the message names the nearest.
        AlgorithmFileError: the file or the function in it cannot be loaded.
        NotSupportedError: a file of MSCCL XML that no program of ours can follow.
    """
    if collective not in CONTRACTS:
        raise UnknownAlgorithmError(f"unknown collective {collective!r}; known: {', '.join(CONTRACTS)}")
    if isinstance(algorithm, Algorithm):
        return algorithm
    if isinstance(algorithm, str):
        return _from_text(algorithm, collective)
    if callable(algorithm):
        name = getattr(algorithm, "__name__", type(algorithm).__name__)
        return Algorithm(name=name, program=algorithm, collective=collective)
    raise TypeError(f"an algorithm is a name or a program, got {type(algorithm).__name__}")


def names_a_file(text: str) -> bool:
    """Return whether *text* is ``FILE.py:FUNCTION``, ``FILE.xml`` or ``FILE.json``."""
    return ".py:" in text or any(_is_of(suffix, text) for suffix in (".xml", ".json"))


def names_msccl_xml(text: str) -> bool:
    """Return whether *text* is ``FILE.xml``, with parameters or without."""
    return _is_of(".xml", text)


def resolve_for_every_collective(text: str) -> tuple[Algorithm, ...]:
    """Return what *text* means for each collective that it is shipped for, in the order shipped.

    A file means one algorithm; with parameters, those algorithms count that have them.

    Raises:
        UnknownAlgorithmError: there is none of that name, or none with these parameters.
        AlgorithmFileError: the file or the function in it cannot be loaded.
    """
    if names_a_file(text):
        return (resolve_algorithm(text),)
    name, _, parameters = text.partition(":")
    shipped = [own for own in _KNOWN if own.name == name]
    if not shipped:
        raise _unknown(name, "", list(dict.fromkeys(own.name for own in _KNOWN)))
    wanted = [item.partition("=")[0] for item in parameters.split(",") if item]
    for_channels = CHANNEL_PARAMETERS if "channels" in wanted else ()
    having = [own for own in shipped if {*wanted} <= {*own.parameter_names(), *for_channels}]
    return tuple(_bind(own, parameters, text) for own in having or shipped)


def _from_text(text: str, collective: str) -> Algorithm:
    path, found, function = text.partition(".py:")
    if names_msccl_xml(text):
        from collectives.formats.msccl_program import load_msccl_xml

        path, parameters = _path_and_parameters(".xml", text)
        chosen = load_msccl_xml(path)
    elif _is_of(".json", text):
        from collectives.formats.schedule_file import load_schedule

        path, parameters = _path_and_parameters(".json", text)
        chosen = load_schedule(path)
    elif found:
        function, _, parameters = function.partition(":")
        chosen = resolve_algorithm(load_program(Path(path + ".py"), function), collective)
    else:
        name, _, parameters = text.partition(":")
        chosen = _shipped(name, collective)
    return _bind(chosen, parameters, text)


def _is_of(suffix: str, text: str) -> bool:
    return text.endswith(suffix) or f"{suffix}:" in text


def _path_and_parameters(suffix: str, text: str) -> tuple[str, str]:
    path, _, parameters = text.rpartition(suffix)
    return path + suffix, parameters.removeprefix(":")


def _shipped(name: str, collective: str) -> Algorithm:
    for shipped in _KNOWN:
        if (shipped.name, shipped.collective) == (name, collective):
            return shipped
    if name == "auto":
        raise UnknownAlgorithmError(
            "auto is a choice among algorithms by size, and none by itself: give it to simulate, connect, "
            "collectives.virtual.run or bench; here name one, such as ring"
        )
    if name == "nccl":
        raise UnknownAlgorithmError(
            "nccl is NCCL's choice by size, and no algorithm: give it to collectives.virtual.run or "
            "simulate, on a network that names its hardware; here name one, such as ring"
        )
    if name == "nvls":
        raise UnknownAlgorithmError(
            "nvls is reduction in the switches, of which the time is known and no message: give it to "
            "simulate, bench, plan, scale or tune; here name one that sends messages, such as ring"
        )
    if name == "native":
        raise UnknownAlgorithmError(
            f"unknown algorithm 'native' for {collective}: native is what the vendor's library runs, and "
            "none of ours; give it by itself to connect or bench, or with transport_model='gloo' to simulate "
            "or collectives.virtual.run; here name one, such as ring"
        )
    raise _unknown(name, f" for {collective}", algorithm_names(collective))


def _unknown(name: str, purpose: str, names: Collection[str]) -> UnknownAlgorithmError:
    nearest = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return UnknownAlgorithmError(
        f"unknown algorithm {name!r}{purpose}; {hint}shipped: {', '.join(names)}; your own: "
        "FILE.py:FUNCTION, FILE.xml or FILE.json"
    )


def _bind(algorithm: Algorithm, parameters: str, text: str) -> Algorithm:
    """Bind ``key=value,…``; values are read by `collectives.catalogue.values.read_value`.

    A parameter whose default is an algorithm, or the two `Halves` of one, takes the name of another.
    Every algorithm has the parameter ``channels`` (see `collectives.program.channels`).
    """
    defaults = inspect.signature(algorithm.program).parameters
    bound: dict[str, Any] = {}
    for item in filter(None, parameters.split(",")):
        key, equals, value = item.partition("=")
        if not equals:
            raise UnknownAlgorithmError(f"{text!r}: expected NAME:key=value,…, got {item!r}")
        bound[key] = _value(value, defaults[key].default if key in defaults else None)

    if "channels" in bound and "channels" not in algorithm.parameter_names():
        algorithm = in_channels(algorithm, bound["channels"])
    try:
        return algorithm.with_parameters(**bound)
    except TypeError as error:
        raise UnknownAlgorithmError(str(error)) from None


def _value(text: str, default: Any) -> Any:
    """Return the value of a parameter that is *text*, of the kind of its *default*."""
    if isinstance(default, Algorithm):
        return resolve_algorithm(text, default.collective)
    if isinstance(default, Halves):
        return Halves(resolve_algorithm(text, "reduce_scatter"), resolve_algorithm(text, "all_gather"))
    return read_value(text)
