"""Events of a rank's profile, as `torch.autograd.profiler` takes them from its profiler in C++."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch._C._autograd import DeviceType

from collectives.errors import NotSupportedError
from collectives.formats.whole_file import write_whole

_USER_SCOPE = 7
"""``RecordScope::USER_SCOPE`` of torch: what a script has marked itself."""

_UNKNOWN: Mapping[str, Any] = {
    **dict.fromkeys(("overload_name", "metadata_json"), ""),
    **dict.fromkeys(("device_index", "device_resource_id", "linked_correlation_id", "external_id"), 0),
    **dict.fromkeys(
        ("scope", "flops", "cuda_elapsed_us", "privateuse1_elapsed_us", "flow_id", "flow_type"), 0
    ),
    **dict.fromkeys(("sequence_nr", "python_id", "python_parent_id", "python_module_id"), -1),
    **dict.fromkeys(("is_async", "is_python_function", "is_hidden_event", "flow_start"), False),
    **dict.fromkeys(("structured_input_shapes", "structured_input_strides"), ()),
    **dict.fromkeys(("shapes", "dtypes", "concrete_inputs", "stack"), ()),
    "kwinputs": {},
    "extra_meta": {},
    "device_type": DeviceType.CPU,
}
"""What is said of an event where nothing is known, by the methods of torch's ``_KinetoEvent``."""


class ProfiledEvent:
    """One event: each value that is given, or not known, is what a method of that name returns.

    Args:
        values: name, start_ns, end_ns, start_thread_id, correlation_id, and others.
    """

    def __init__(self, **values: Any) -> None:
        is_users = values.get("scope") == _USER_SCOPE
        self._values = {
            **_UNKNOWN,
            "end_thread_id": values["start_thread_id"],
            "fwd_thread_id": values["start_thread_id"],
            "duration_ns": values["end_ns"] - values["start_ns"],
            "is_user_annotation": is_users,
            "activity_type": "user_annotation" if is_users else "cpu_op",
            **values,
        }

    def __getattr__(self, name: str) -> Callable[[], Any]:
        if name.startswith("__") or name not in self._values:
            raise AttributeError(f"an event of a rank's profile has no {name}")
        value = self._values[name]
        return lambda: list(value) if isinstance(value, tuple) else value


class RankProfile:
    """What a rank's profiler returns when it is disabled; torch's ``_ProfilerResult``."""

    def __init__(self, rank: int, start_ns: int, events: Sequence[ProfiledEvent]) -> None:
        self._rank = rank
        self._start_ns = start_ns
        self._events = list(events)

    def events(self) -> list[ProfiledEvent]:
        """Return all events, in the order in which they began."""
        return self._events

    def trace_start_ns(self) -> int:
        """Return when the profiler was enabled."""
        return self._start_ns

    def save(self, path: str) -> None:
        """Write the events to *path*, in the JSON of ``chrome://tracing``."""
        spans = [
            {
                "ph": "X",
                "cat": event.activity_type(),
                "name": event.name(),
                "pid": self._rank,
                "tid": event.start_thread_id() + event.is_async(),
                "ts": event.start_ns() / 1000,
                "dur": event.duration_ns() / 1000,
                "args": {"Input Dims": event.shapes(), **event.extra_meta()},
            }
            for event in self._events
        ]
        document = {"schemaVersion": 1, "distributedInfo": {"rank": self._rank}, "traceEvents": spans}
        write_whole(path, json.dumps(document))

    def experimental_event_tree(self) -> list[Any]:
        """Refuse: the tree holds what only the profiler in C++ knows.

        Raises:
            NotSupportedError: always.
        """
        raise NotSupportedError(
            "a rank's profile in virtual time has events, and no tree of memory and Python's functions; "
            "profile with torchrun"
        )
