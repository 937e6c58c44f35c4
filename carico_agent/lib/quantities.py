"""Quantities on the command line: times, CPUs, sizes and shares, as Kubernetes and Prometheus write them."""

import argparse
import math
import re

from carico_agent.plugin_api.formats import parse_quantity

_TIMES_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def duration(text: str) -> float:
    """Seconds.

    >>> duration("8d"), duration("90s"), duration("30")
    (691200.0, 90.0, 30.0)
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)?", text)
    value = float(match[1]) * _TIMES_S[match[2] or "s"] if match else 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r}: a time such as 90s, 24h or 8d is expected")
    return value


def cores(text: str) -> float:
    """
    >>> cores("250m"), cores("2")
    (0.25, 2.0)
    """
    return _quantity(text, 0.0, "CPUs such as 2 or 250m are expected")


def memory(text: str) -> float:
    """
    >>> memory("250Mi"), memory("1G")
    (262144000.0, 1000000000.0)
    """
    return _quantity(text, 1.0, "a size such as 250Mi or 64Gi is expected")


def _quantity(text: str, least: float, expected: str) -> float:
    try:
        value = parse_quantity(text)
    except ValueError:
        value = math.nan
    if not value >= least:
        raise argparse.ArgumentTypeError(f"{text!r}: {expected}")
    return value


def share(text: str) -> float:
    """A percentile: 95, 95% and 0.95 are the same.

    >>> share("95"), share("0.95")
    (0.95, 0.95)
    """
    value = _number(text)
    value = value / 100 if value > 1 or text.endswith("%") else value
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a percentile such as 90 or 0.9 is expected")
    return value


def ratio(text: str) -> float:
    """A margin: 0.15 and 15% are the same.

    >>> ratio("0.15"), ratio("15%")
    (0.15, 0.15)
    """
    value = _number(text) / (100 if text.endswith("%") else 1)
    if not 0 <= value <= 10:
        raise argparse.ArgumentTypeError(f"{text!r}: a margin such as 0.15 or 15% is expected")
    return value


def _number(text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r}: a number is expected")
    return value
