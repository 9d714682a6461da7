"""From the mean loss and the counts to the metrics, and to what the API gets.

Pure arithmetic. Every figure that comes out is finite: what can't be computed has the client's own 999."""

from __future__ import annotations

import math
import sys

from automate.validation.modules.base import BaseMetrics
from automate.validation.modules.lora.rows import Counts

WORST = 999.0
"""The loss of a model that is too large, or whose loss is not a number."""
_LARGEST = sys.float_info.max


class LoraMetrics(BaseMetrics):
    """`loss`: nats, mean over rows of each row's token mean. `bpc`: bits a byte; `bppl` is 2 to that power.

    `nll_token_nats_total` is loss times target tokens, `nll_token_bits_total` the same in bits.
    """

    loss: float
    bpc: float
    bppl: float
    nll_token_nats_total: float
    nll_token_bits_total: float


def worst() -> LoraMetrics:
    """The metrics of a model that is too large, or whose loss is not a number: completed, with 999."""
    return LoraMetrics(loss=WORST, bpc=WORST, bppl=2.0**WORST, nll_token_nats_total=WORST,
                       nll_token_bits_total=WORST)


def _power(bits: float) -> float:
    try:
        return math.pow(2.0, bits)
    except OverflowError:
        return _LARGEST


def metrics_of(loss: float, counts: Counts) -> LoraMetrics:
    """The metrics of a mean loss in nats over a set with these counts; `worst()` where they are not finite."""
    if counts.bytes == 0 or not math.isfinite(loss):
        return worst()
    nats = loss * counts.tokens
    bits = nats / math.log(2)
    if not math.isfinite(bits):
        return worst()
    bpc = bits / counts.bytes
    return LoraMetrics(loss=loss, bpc=bpc, bppl=_power(bpc), nll_token_nats_total=nats, nll_token_bits_total=bits)


def old_payload(found: LoraMetrics, gpu_type: str) -> dict[str, str | float]:
    """What the client of before sends: its `loss` is the bits a byte."""
    return {"loss": found.bpc, "gpu_type": gpu_type}
