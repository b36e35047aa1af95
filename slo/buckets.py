"""Where a latency lies in an HDR histogram of 1 us to 3,600 s and 3 digits, for whole arrays."""

import numpy as np
from numpy.typing import NDArray

LOWEST_US = 1
HIGHEST_US = 3_600_000_000
DIGITS = 3

# Of the HDR layout that follows from 3 digits: 2,048 slots of 1 us, then 1,024 for each doubling.
_HALF_BITS = 10
_HALF = 1 << _HALF_BITS
_SLOTS = 2 * _HALF


def bucket_of(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Index of the bucket of each value; below 0 counts as 0, above 3,600 s as 3,600 s."""
    us = np.clip(np.rint(seconds * 1e6), 0, HIGHEST_US).astype(np.int64)
    bits = np.frexp((us | (_SLOTS - 1)).astype(np.float64))[1].astype(np.int64)
    doubling = bits - (_HALF_BITS + 1)
    index: NDArray[np.int64] = (doubling << _HALF_BITS) + (us >> doubling)
    return index


def lowest_us(index: NDArray[np.int64]) -> NDArray[np.int64]:
    """The lowest value of each bucket, in us."""
    doubling = np.maximum((index >> _HALF_BITS) - 1, 0)
    lowest: NDArray[np.int64] = (index - (doubling << _HALF_BITS)) << doubling
    return lowest


def highest_us(index: NDArray[np.int64]) -> NDArray[np.int64]:
    """The highest value of each bucket, in us: what HDR tools report of it."""
    doubling = np.maximum((index >> _HALF_BITS) - 1, 0)
    highest: NDArray[np.int64] = lowest_us(index) + (1 << doubling) - 1
    return highest


# A histogram holds whole doublings.
BUCKETS = ((int(bucket_of(np.array([HIGHEST_US / 1e6]))[0]) >> _HALF_BITS) + 1) << _HALF_BITS
