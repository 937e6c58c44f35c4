"""Kalman filters, small enough to read at a glance.

Why not filterpy: importing it costs 65 MB and 0.6 s (it pulls scipy), for arithmetic of four lines. It is the oracle
of the tests instead, which compare these two classes with it to 1e-9.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class ScalarKalman:
    """Believes one slowly wandering number: `x` with variance `p`.

    >>> k = ScalarKalman(x=0.0, p=1.0)
    >>> k.predict(q=0.0); k.update(z=1.0, h=1.0, r=1.0)
    >>> k
    ScalarKalman(x=0.5, p=0.5)
    """

    x: float
    p: float

    def predict(self, q: float) -> None:
        # x ← x, P ← P + Q
        self.p += q

    def update(self, z: float, h: float, r: float) -> None:
        # S = H P Hᵀ + R, K = P Hᵀ / S, x ← x + K (z − H x), P ← (1 − K H) P (1 − K H) + K R K (Joseph form)
        gain = self.p * h / (h * self.p * h + r)
        self.x += gain * (z - h * self.x)
        rest = 1 - gain * h
        self.p = rest * self.p * rest + gain * r * gain


@dataclass(slots=True)
class JointKalman:
    """Believes two numbers at once: `a` and `b`, with their variances and their covariance `ab_p`.

    Written out, because two numbers in numpy cost ten times as much (`make bench`, "model update").

    >>> k = JointKalman(a=0.0, b=0.0, a_p=1.0, b_p=1.0)
    >>> k.update(z=1.0, h=1.0, r=2.0)                                       # a + b = 1, both are as likely the cause
    >>> k
    JointKalman(a=0.25, b=0.25, a_p=0.75, b_p=0.75, ab_p=-0.25)
    """

    a: float
    b: float
    a_p: float
    b_p: float
    ab_p: float = 0.0

    def predict(self, a_q: float, b_q: float) -> None:
        self.a_p += a_q
        self.b_p += b_q

    def variance(self, h: float) -> float:
        """Of a + h·b, with H = (1, h): H P Hᵀ."""
        return self.a_p + h * (2 * self.ab_p + h * self.b_p)

    def update(self, z: float, h: float, r: float) -> None:
        """z = a + h·b was seen, with noise of variance `r`."""
        s = self.variance(h) + r
        a_gain, b_gain = (self.a_p + h * self.ab_p) / s, (self.ab_p + h * self.b_p) / s
        residual = z - self.a - h * self.b
        self.a += a_gain * residual
        self.b += b_gain * residual
        # P ← (1 − K H) P (1 − K H)ᵀ + K R Kᵀ (Joseph form); m = 1 − K H, n = m P
        m11, m12, m21, m22 = 1 - a_gain, -a_gain * h, -b_gain, 1 - b_gain * h
        n11, n12 = m11 * self.a_p + m12 * self.ab_p, m11 * self.ab_p + m12 * self.b_p
        n21, n22 = m21 * self.a_p + m22 * self.ab_p, m21 * self.ab_p + m22 * self.b_p
        self.a_p = n11 * m11 + n12 * m12 + r * a_gain * a_gain
        self.b_p = n21 * m21 + n22 * m22 + r * b_gain * b_gain
        self.ab_p = n11 * m21 + n12 * m22 + r * a_gain * b_gain

    def bound(self, a_low: float, a_high: float, b_low: float) -> None:
        """Keep a in [a_low, a_high] and b ≥ b_low by conditioning: the other one follows by the covariance.

        Why: a belief that is cut off alone contradicts what was seen. Eight idle Pods and then busy ones ask for a
        negative `a`; cut off at 0, `b` stayed far too small and the next updates drove `a` to 55,310.

        >>> k = JointKalman(a=0.5, b=-0.1, a_p=1.0, b_p=0.04, ab_p=-0.1)
        >>> k.bound(-1.0, 1.0, 0.0)                                         # b rises by .1, so a falls by .1·.1/.04
        >>> round(k.a, 12), k.b
        (0.25, 0.0)
        """
        if self.b < b_low:
            self.a += self.ab_p / self.b_p * (b_low - self.b) if self.b_p > 0 else 0.0
            self.b = b_low
        a = min(max(self.a, a_low), a_high)
        if a != self.a:
            self.b += self.ab_p / self.a_p * (a - self.a) if self.a_p > 0 else 0.0
            self.a, self.b = a, max(self.b, b_low)
