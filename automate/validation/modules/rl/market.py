"""Orders to be spread over venues, read from a `.npz` file, and the reward of an allocation.

Pure but for `read`. The file is a stranger's: no pickles, checked shapes, a limit on what it unpacks to."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from automate.validation.modules.base import RecoverableException, SubmissionFault

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Floats = NDArray[numpy.float32]

LARGEST = 16 * 2**30
"""Bytes that the arrays of a validation set may unpack to."""
_QTY, _DURATION, _FIRST_VENUE, _PER_VENUE = 0, 1, 3, 4
_BPS = 10_000.0


@dataclass(frozen=True)
class Orders:
    """N orders over V venues, float32. `features`: [N, ...], the policy's input; `quantity`, `duration`: [N].

    `fill` (rate), `rebate` (basis points), `punish`, `volume` (latest): [N, V].
    """

    features: Floats
    quantity: Floats
    duration: Floats
    fill: Floats
    rebate: Floats
    punish: Floats
    volume: Floats

    @property
    def venues(self) -> int:
        return int(self.fill.shape[1])


def _trouble(what: str) -> RecoverableException:
    return RecoverableException(f"the validation set: {what}", cause="data")


def _arrays(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """The arrays `X` and `Info`. Raises RecoverableException."""
    import numpy

    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(one.file_size for one in archive.infolist())
        if size > LARGEST:
            raise _trouble(f"it unpacks to {size} bytes; {LARGEST} are allowed")
        with numpy.load(path, allow_pickle=False) as arrays:
            return arrays["X"], arrays["Info"]
    except KeyError as error:
        raise _trouble(f"an array is missing: {error}; expected X and Info") from error
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, zlib.error) as error:
        raise _trouble(f"it can't be read as .npz without pickles: {error}") from error


def read(path: Path) -> Orders:
    """The orders of a validation set. `Info` has columns quantity, duration, one unused, then four for each venue.

    Raises RecoverableException (cause `data`), naming the row where one is at fault.
    """
    import numpy

    features, info = _arrays(path)
    if not all(numpy.issubdtype(one.dtype, numpy.number) and not numpy.iscomplexobj(one) for one in (features, info)):
        raise _trouble(f"expected numbers, found {features.dtype} and {info.dtype}")
    if features.ndim < 1 or info.ndim != 2 or len(features) != len(info):
        raise _trouble(f"expected X [N, ...] and Info [N, columns], found {features.shape} and {info.shape}")
    if not len(info):
        raise _trouble("it is empty")
    venues = (info.shape[1] - _FIRST_VENUE) // _PER_VENUE
    if venues < 1:
        raise _trouble(f"expected at least {_FIRST_VENUE + _PER_VENUE} columns in Info, found {info.shape[1]}")
    numbers = info.astype(numpy.float32)
    by_venue = numbers[:, _FIRST_VENUE:_FIRST_VENUE + venues * _PER_VENUE].reshape(-1, venues, _PER_VENUE)
    return Orders(features.astype(numpy.float32), numbers[:, _QTY], numbers[:, _DURATION],
                  by_venue[:, :, 0], by_venue[:, :, 1], by_venue[:, :, 2], by_venue[:, :, 3])


def rewards(actions: Floats, orders: Orders) -> Floats:
    """The reward of each order, [N], for actions [N, V].

    Actions are clipped at 0 and made to sum to 1 (rows of zeros stay zero). A venue takes what it is given up to
    volume * (1 + 0.6 * (1 - exp(-0.9 * duration))) * fill; what is taken earns the rebate, the rest the punishment;
    the sum is divided by log(1 + quantity).
    """
    import numpy

    clipped = numpy.clip(actions, 0.0, None)
    total = clipped.sum(axis=1, keepdims=True)
    share = numpy.divide(clipped, total, out=numpy.zeros_like(clipped), where=total != 0)
    allocated = share * orders.quantity[:, None]
    grown = 1.0 + 0.6 * (1.0 - numpy.exp(-0.9 * orders.duration[:, None]))
    capacity = orders.volume * grown * numpy.clip(orders.fill, 0.0, 1.0)
    filled = numpy.minimum(allocated, capacity)
    earned = orders.rebate / _BPS * filled + orders.punish * (allocated - filled)
    found: Floats = earned.sum(axis=1) / numpy.log1p(orders.quantity)
    return found


def average_reward(actions: Floats, orders: Orders) -> float:
    """The mean of `rewards`, float64.

    Where one is not finite: RecoverableException (cause `data`) if its row of the set is at fault; else
    SubmissionFault.
    """
    import numpy

    with numpy.errstate(all="ignore"):
        each = rewards(actions, orders)
        broken = numpy.flatnonzero(~numpy.isfinite(each))
        if not len(broken):
            return float(each.mean(dtype=numpy.float64))
        row = int(broken[0])
        if not _sound(orders, row):
            raise _trouble(f"row {row + 1} has a quantity of 0 or below -1, or a number that is not finite")
    raise SubmissionFault(f"the policy's output for row {row + 1} has no finite reward", cause="non-finite")


def _sound(orders: Orders, row: int) -> bool:
    """Whether a row of the set has finite rewards for finite actions."""
    import numpy

    parts = (orders.features, orders.duration, orders.fill, orders.rebate, orders.punish, orders.volume)
    divisor = numpy.log1p(orders.quantity[row])
    return bool(numpy.isfinite(divisor) and divisor != 0 and all(numpy.isfinite(part[row]).all() for part in parts))
