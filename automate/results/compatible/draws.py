"""The numbers that numpy's old generator draws, the same ones, in blocks: for resampling as Arena-Hard's program does.

Never used by the default mode."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 16


class Draws:
    """`below(size, count)` is `RandomState(seed).randint(0, size, count)`, call after call.

    That takes words of 32 bits, cuts each to as many bits as `size - 1` has, and drops those that are too large, one
    after another; here a block at a time, which takes no wrong turns.
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.RandomState(seed)
        self._words: NDArray[np.uint32] = np.zeros(0, np.uint32)
        self._at = 0

    def below(self, size: int, count: int) -> NDArray[np.uint32]:
        """Numbers from 0 to `size` - 1, shape (count,)."""
        if size == 1 or not count:
            return np.zeros(count, np.uint32)  # for these numpy takes no word
        mask = np.uint32((1 << (size - 1).bit_length()) - 1)
        parts: list[NDArray[np.uint32]] = []
        missing = count
        while missing:
            words = self._ahead(min(BLOCK, missing * (int(mask) + 1) // size + missing // 32 + 64)) & mask
            good = (words < size).nonzero()[0][:missing]
            parts.append(words.take(good))
            missing -= len(good)
            self._at += len(words) if missing else int(good[-1]) + 1
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _ahead(self, count: int) -> NDArray[np.uint32]:
        """The next words, which stay the next ones."""
        if len(self._words) - self._at < count:
            more = self._generator.randint(0, 1 << 32, BLOCK, np.uint32)
            self._words, self._at = np.concatenate([self._words[self._at:], more]), 0
        return self._words[self._at:self._at + count]
