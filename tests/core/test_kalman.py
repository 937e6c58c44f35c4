"""Our filters against filterpy's, to 1e-9."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.core.kalman import JointKalman, ScalarKalman

filterpy = pytest.importorskip("filterpy.kalman", reason="filterpy is the oracle: pip install carico-agent[filterpy]")

steps = st.lists(
    st.tuples(st.floats(-10, 10), st.floats(-8, 8), st.floats(1e-6, 10), st.floats(0, 1)), min_size=1, max_size=40
)


def oracle(x: list[float], p: np.ndarray) -> "filterpy.KalmanFilter":
    kf = filterpy.KalmanFilter(dim_x=len(x), dim_z=1)
    kf.x, kf.P, kf.F = np.array(x).reshape(-1, 1), p.copy(), np.eye(len(x))
    return kf


@given(steps)
def test_scalar(sequence: list[tuple[float, float, float, float]]) -> None:
    ours, theirs = ScalarKalman(0.5, 2.0), oracle([0.5], np.array([[2.0]]))
    for z, h, r, q in sequence:
        ours.predict(q)
        ours.update(z, h, r)
        theirs.predict(Q=np.array([[q]]))
        theirs.update(z, R=np.array([[r]]), H=np.array([[h]]))
        assert ours.x == pytest.approx(theirs.x[0, 0], abs=1e-9)
        assert ours.p == pytest.approx(theirs.P[0, 0], abs=1e-9)


@given(steps)
def test_joint(sequence: list[tuple[float, float, float, float]]) -> None:
    p = np.array([[2.0, 0.3], [0.3, 1.0]])
    ours, theirs = JointKalman(1.0, 0.5, 2.0, 1.0, 0.3), oracle([1.0, 0.5], p)
    for z, n, r, q in sequence:
        h = np.array([[1.0, -n]])
        ours.predict(q, 2 * q)
        assert ours.variance(-n) == pytest.approx((h @ (theirs.P + np.diag([q, 2 * q])) @ h.T).item(), abs=1e-9)
        ours.update(z, -n, r)
        theirs.predict(Q=np.diag([q, 2 * q]))
        theirs.update(z, R=np.array([[r]]), H=h)
        np.testing.assert_allclose([ours.a, ours.b], theirs.x.ravel(), atol=1e-9)
        held = np.array([[ours.a_p, ours.ab_p], [ours.ab_p, ours.b_p]])
        np.testing.assert_allclose(held, theirs.P, atol=1e-9)
        assert np.linalg.eigvalsh(held).min() >= -1e-12
