"""A control plane of real parts under load: `python -m lab.plane`, `lab.plane.lists`, `lab.plane.qps`."""
