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
    ours, theirs = JointKalman(np.array([1.0, 0.5]), p), oracle([1.0, 0.5], p)
    for z, n, r, q in sequence:
        noise, h = np.diag([q, 2 * q]), np.array([1.0, -n])
        ours.predict(noise)
        ours.update(z, h, r)
        theirs.predict(Q=noise)
        theirs.update(z, R=np.array([[r]]), H=h.reshape(1, 2))
        np.testing.assert_allclose(ours.x, theirs.x.ravel(), atol=1e-9)
        np.testing.assert_allclose(ours.p, theirs.P, atol=1e-9)
        assert np.linalg.eigvalsh(ours.p).min() >= -1e-12
