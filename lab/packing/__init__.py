"""Packing heuristics on lists of Pods (`python -m lab.packing`) and on a simulated cluster (`lab.packing.cluster`)."""
