"""A first estimate of time: transfers and each class of arithmetic overlap, the slowest decides.

It leaves out latency, launches and waves of blocks that do not fill the machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ioweave.hierarchy.counts import Flops
from ioweave.hierarchy.machines import WORK_CLASSES, Machine
from ioweave.hierarchy.quantities import Bytes, Seconds


@dataclass(frozen=True, slots=True)
class TimeEstimate:
    """Seconds of an algorithm on a machine.

    ``total`` takes the whole transfer H for traffic of the upper level, which the upper level
    sees at most; ``least`` takes the compulsory traffic alone. ``compute`` is by class of
    arithmetic, ``transfer`` by the lower level of the pair, ``bound_by`` the key of the slowest.
    """

    total: Seconds
    least: Seconds
    compute: tuple[tuple[str, Seconds], ...]
    transfer: tuple[tuple[str, Seconds], ...]
    bound_by: str

    def to_json(self) -> dict[str, Any]:
        """As ``seconds`` of a side of the report; plain numbers of seconds."""
        return {
            "total": self.total.value,
            "least": self.least.value,
            "compute": {work: time.value for work, time in self.compute},
            "transfer": {level: time.value for level, time in self.transfer},
            "bound_by": self.bound_by,
        }


def estimate_time(
    machine: Machine,
    transfers: Bytes,
    compulsory: Bytes,
    flops: Flops,
    *,
    levels: tuple[str, str] = ("gmem", "smem"),
    mma_dtype: str = "fp16",
    vector_dtype: str = "fp32",
) -> TimeEstimate:
    """The larger of transfers over bandwidth and FLOPs over the peak of each class.

    ``transfers`` is H between the two ``levels``, ``compulsory`` the bytes of the inputs and
    outputs, each moved once. ``mma_dtype`` is the dtype of the factors of matrix products,
    ``vector_dtype`` that of other arithmetic. Raises WeaveError for levels that the machine lacks.
    """
    upper, lower = levels
    bandwidth = machine.bandwidth(upper, lower)
    work = ((flops.mma, mma_dtype), (flops.vector, vector_dtype), (flops.special, vector_dtype))
    compute = tuple(
        (name, machine.peak(name, dtype).time(count)) for name, (count, dtype) in zip(WORK_CLASSES, work, strict=True)
    )
    transfer = transfers / bandwidth
    slowest = max(time for _, time in compute)
    # on a tie the transfer is named: it is what a schedule can change
    bound_by = lower if transfer >= slowest else next(w for w, time in compute if time == slowest)
    return TimeEstimate(
        total=max(transfer, slowest),
        least=max(min(transfers, compulsory) / bandwidth, slowest),
        compute=compute,
        transfer=((lower, transfer),),
        bound_by=bound_by,
    )
