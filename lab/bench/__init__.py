"""What the agent costs, measured on this machine in one run, beside node_exporter and a C loop.

    python -m lab.bench [--quick] [--json] [--soak [MINUTES]] [--only whole,api,...] [--write]

--write keeps what was measured, section by section, in lab/results/bench.md.

Others may be using the machine, so costs are CPU time (the kernel's clock of each process, in nanoseconds) and not
elapsed time, and things that are compared run in the same window. Nothing here is a test: a verdict is printed, and
the exit code is 0 unless something could not be measured.
"""
