"""Damaged copies of good bytes, by the thousand: the same ones in every run, others with another CARICO_SEED.

`make fuzz` takes ten times as many (CARICO_CASES) with the day as the seed.

Why not hypothesis for the bulk: it takes half a millisecond to make a case, this takes ten microseconds; it stays
where a failure needs to be made small.
"""

import os
import random
from collections.abc import Iterator, Sequence

CASES = int(os.environ.get("CARICO_CASES", "10000"))
SEED = int(os.environ.get("CARICO_SEED", "1"))
ODD = (
    b"",
    b"\0",
    b"\n",
    b" ",
    b":",
    b"-",
    b"-1",
    b"9" * 30,
    b"9" * 400,
    b"9" * 5000,
    b"1e9",
    b"0x1",
    b"\xff",
    b"\xff" * 10,
    b"\xc2\xb2",
    b"some ",
    b"total=",
    b"cpu",
    b" kB\n",
    b"0-99999999999",
    b"\x80\x01",
    b"\x0a\x7f",
)


def damaged(good: Sequence[bytes], cases: int = CASES, seed: int = SEED, most: int = 4) -> Iterator[bytes]:
    """`cases` damaged ones, each in `most` places at most: cut off or out, doubled, replaced, a bit turned, spliced."""
    dice = random.Random(seed)
    for _ in range(cases):
        data = dice.choice(good)
        for _ in range(dice.randint(1, most)):
            start = dice.randint(0, len(data))
            end = min(len(data), start + dice.randint(0, 12))
            data = data[:start] + _instead(dice, data[start:end], good) + data[end:]
        yield data[: dice.randint(0, len(data))] if dice.random() < 0.1 else data


def _instead(dice: random.Random, piece: bytes, good: Sequence[bytes]) -> bytes:
    workload = dice.randrange(5)
    if workload == 0:
        return dice.choice(ODD)
    if workload == 1:
        return dice.randbytes(dice.randint(0, 8))
    if workload == 2:
        return piece * 2
    if workload == 3 and piece:
        return bytes([piece[0] ^ 1 << dice.randrange(8)]) + piece[1:]
    other = dice.choice(good)
    start = dice.randint(0, len(other))
    return other[start : start + len(piece)]
