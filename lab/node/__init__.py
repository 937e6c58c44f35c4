"""Pod-Capacity on a real node: equal Pods (`python -m lab.node`) and different ones (`python -m lab.node.mixed`)."""
