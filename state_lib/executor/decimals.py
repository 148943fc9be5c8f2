"""Exact sums of decimals of 128 bits, as four numbers of 32 bits.

A sum beyond 38 digits wraps around, as sums of integers do beyond 64 bits: nothing else is
independent of how the stream was cut into batches. It takes 10^10 values of 28 digits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state_lib.serdes.columns import Mask, bitmap, buffer_of, valid_mask, view_of
from state_lib.serdes.kinds import MOST_DIGITS

MOST_SUMMED = 28
"""Most digits of summed values: Spark's sum of a batch has ten more."""
_Limbs = npt.NDArray[np.int64]
_COUNT, _BITS = 4, 32
_MASK = (1 << _BITS) - 1
_MOST = 10**MOST_DIGITS - 1
_LAST = _MOST >> (_BITS * (_COUNT - 1))
"""If the last number is farther from zero, the sum may be beyond 38 digits."""


def folded(column: Any, heads: npt.NDArray[np.int64]) -> tuple[Any, int]:
    """One sum per run of equal keys, null if all its values are; and how many sums wrapped."""
    there = _there(column)
    some = np.logical_or.reduceat(there, heads)
    return _array(np.add.reduceat(_limbs(column, there), heads, axis=0), column.type, some)


def added(was: Any, now: Any) -> tuple[Any, int]:
    """Sums of two columns, and how many wrapped; null plus a value is that value."""
    before, behind = _there(was), _there(now)
    limbs = _limbs(was, before) + _limbs(now, behind)
    return _array(limbs, now.type, before | behind)


def _there(column: Any) -> Mask:
    valid = valid_mask(column)
    return np.ones(len(column), np.bool_) if valid is None else valid


def _limbs(column: Any, there: Mask) -> _Limbs:
    """The four numbers, the least significant first; the last has the sign. 0 for nulls."""
    raw = view_of(column, "V16").view("<u4").reshape(-1, _COUNT)
    limbs = np.where(there[:, None], raw, 0).astype(np.int64)
    limbs[:, -1] = limbs[:, -1].astype(np.uint32).view(np.int32)
    return limbs


def _array(limbs: _Limbs, kind: pa.DataType, there: Mask) -> tuple[Any, int]:
    for at in range(_COUNT - 1):
        limbs[:, at + 1] += limbs[:, at] >> _BITS
        limbs[:, at] &= _MASK
    wrapped = 0
    for row in np.flatnonzero(np.abs(limbs[:, -1]) >= _LAST):
        value = sum(int(limb) << (_BITS * at) for at, limb in enumerate(limbs[row]))
        if abs(value) > _MOST:
            wrapped += 1
            value = (value + _MOST) % (2 * _MOST + 1) - _MOST
            limbs[row, -1] = value >> (_BITS * (_COUNT - 1))
            for at in range(_COUNT - 1):
                limbs[row, at] = value >> (_BITS * at) & _MASK
    raw = (limbs & _MASK).astype("<u4")
    valid = None if there.all() else bitmap(there)
    return pa.Array.from_buffers(kind, len(raw), [valid, buffer_of(raw)]), wrapped
