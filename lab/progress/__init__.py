"""Progress-based placement in simulation: workers that share their processors, the document's six schedules, and who
places the jobs. Entry point: lab/progress/sim.py."""
