"""How requests wait for each other: dynamic batching and sequence batching, in the words of the command line."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig, ModelQueuePolicy, ModelSequenceBatching

from ...errors import UsageError
from .choices import dimensions, microseconds, number, one_of
from .frameworks.reading import data_type, in_range

_CONTROLS = {
    "start": "CONTROL_SEQUENCE_START", "ready": "CONTROL_SEQUENCE_READY", "end": "CONTROL_SEQUENCE_END",
    "corrid": "CONTROL_SEQUENCE_CORRID",
}  # fmt: skip
_FLAGS: dict[str, tuple[str, Sequence[Any]]] = {
    "INT32": ("int32_false_true", (0, 1)),
    "FP32": ("fp32_false_true", (0.0, 1.0)),
    "BOOL": ("bool_false_true", (False, True)),
}
_STRATEGIES = ("direct", "oldest")
_ACTIONS = ("reject", "delay")


@dataclass(frozen=True)
class QueueChoices:
    """What becomes of requests that wait: of all, or of those of one priority."""

    size: int = 0
    """How many may wait; 0 is any number."""
    timeout: str = ""
    """How long one may wait (`10ms`); "" is for ever."""
    timeout_action: str = "reject"
    """`reject` one that waited too long, or `delay` it until no other waits."""
    override: bool = False
    """Whether a request may bring a shorter time of its own."""

    def fill(self, policy: Any) -> None:
        """Write them into a ModelQueuePolicy; raises UsageError."""
        policy.max_queue_size = self.size
        if self.timeout:
            policy.default_timeout_microseconds = microseconds(self.timeout)
        policy.timeout_action = ModelQueuePolicy.TimeoutAction.Value(
            one_of(self.timeout_action, _ACTIONS, "timeout action").upper()
        )
        policy.allow_timeout_override = self.override


@dataclass(frozen=True)
class BatchingChoices:
    """How batches are formed; texts are as the command line takes them."""

    dynamic: bool = False
    preferred: Sequence[int] = ()
    """Sizes of batches that are not to be held back for more."""
    delay: str = ""
    """How long requests wait for others to be batched with (`500us`, `5ms`)."""
    preserve_ordering: bool = False
    priority_levels: int = 0
    default_priority: int = 0
    queue: QueueChoices = QueueChoices()
    queues: Sequence[str] = ()
    """Of one priority each: `LEVEL:timeout=10ms,action=delay,size=100,override`."""
    sequence: str = ""
    """`direct` (a slot of the batch for each sequence) or `oldest`; "" where requests are on their own."""
    idle: str = ""
    """After how long a sequence is given up that nobody has ended."""
    max_candidates: int = 0
    """Sequences at once, where the strategy is `oldest`."""
    controls: Sequence[str] = ()
    """`NAME:KIND[:TYPE]` each, with a KIND of start, ready, end, corrid."""
    states: Sequence[str] = ()
    """`INPUT:OUTPUT:TYPE:DIMS` each: what Triton keeps of a sequence between its requests."""

    @in_range()
    def settings(self) -> Any:
        """Return them as a ModelConfig; raises UsageError."""
        config = ModelConfig()
        queueing = any((self.priority_levels, self.default_priority, self.queue != QueueChoices(), self.queues))
        if self.sequence:
            if self.dynamic or queueing:
                raise UsageError(
                    "dynamic batching and sequence batching exclude each other",
                    do="leave out the options of dynamic batching, of priorities and of queues",
                )
            self._sequence(config.sequence_batching)
            return config
        if self.idle or self.max_candidates or self.controls or self.states:
            raise UsageError("these are options of sequence batching", do="say --sequence-batching direct, or oldest")
        if self.dynamic or queueing or self.preferred or self.delay or self.preserve_ordering:
            self._dynamic(config.dynamic_batching)
        return config

    def _dynamic(self, batching: Any) -> None:
        batching.SetInParent()
        batching.preferred_batch_size.extend(self.preferred)
        if self.delay:
            batching.max_queue_delay_microseconds = microseconds(self.delay)
        batching.preserve_ordering = self.preserve_ordering
        # Triton refuses levels without a default among them: the lowest is what nobody has asked to raise.
        batching.priority_levels = self.priority_levels
        batching.default_priority_level = self.default_priority or self.priority_levels
        if self.queue != QueueChoices():
            self.queue.fill(batching.default_queue_policy)
        for text in self.queues:
            level, policy = _of_priority(text)
            policy.fill(batching.priority_queue_policy[level])

    def _sequence(self, batching: Any) -> None:
        strategy = getattr(batching, one_of(self.sequence, _STRATEGIES, "strategy"))
        strategy.SetInParent()
        if self.delay:
            strategy.max_queue_delay_microseconds = microseconds(self.delay)
        if self.sequence == "oldest":
            strategy.max_candidate_sequences = self.max_candidates
            strategy.preferred_batch_size.extend(self.preferred)
            strategy.preserve_ordering = self.preserve_ordering
        elif self.max_candidates or self.preferred or self.preserve_ordering:
            raise UsageError(
                "candidates, preferred sizes and ordering are chosen for the strategy oldest only",
                do="say --sequence-batching oldest, or leave them out",
            )
        if self.idle:
            batching.max_sequence_idle_microseconds = microseconds(self.idle)
        for text in self.controls:
            _control(batching, text)
        for text in self.states:
            parts = text.split(":")
            if len(parts) != 4:
                raise UsageError(f"{text!r} is no state", do="write it so: INPUT:OUTPUT:TYPE:DIMS")
            kind = DataType.Value(f"TYPE_{data_type(parts[2])}")
            batching.state.add(
                input_name=parts[0], output_name=parts[1], data_type=kind, dims=dimensions(parts[3], text)
            )


def _of_priority(text: str) -> tuple[int, QueueChoices]:
    level, _, rest = text.partition(":")
    said = dict(each.partition("=")[::2] for each in rest.split(","))
    for key in said:
        one_of(key, ("timeout", "action", "size", "override"), "rule of a queue")
    policy = QueueChoices(
        number(said["size"], text) if "size" in said else 0, said.get("timeout", ""), said.get("action", "reject"),
        "override" in said,
    )  # fmt: skip
    return number(level, text), policy


def _control(batching: Any, text: str) -> None:
    name, _, rest = text.partition(":")
    kind, _, of_type = rest.partition(":")
    kind = one_of(kind.lower(), list(_CONTROLS), "control of sequences")
    control_input = next((each for each in batching.control_input if each.name == name), None)
    control = (control_input or batching.control_input.add(name=name)).control.add()
    control.kind = ModelSequenceBatching.Control.Kind.Value(_CONTROLS[kind])
    wanted = data_type(of_type) if of_type else "UINT64" if kind == "corrid" else "INT32"
    if kind == "corrid":
        control.data_type = DataType.Value(f"TYPE_{wanted}")
        return
    if wanted not in _FLAGS:
        raise UsageError(f"{text!r}: a flag is {', '.join(_FLAGS)}, not {wanted}", do=f"say {name}:{kind}:INT32")
    field, values = _FLAGS[wanted]
    getattr(control, field).extend(values)
