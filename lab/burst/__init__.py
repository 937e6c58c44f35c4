"""Jobs of the thesis on four systems, simulated: `python -m lab.burst.sim`."""
