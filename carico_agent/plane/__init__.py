"""A control plane that stays answerable: a queueing model per component, a diagnosis from its metrics, and seats.

Source: *MerKury: Adaptive Resource Allocation to Enhance the Kubernetes Performance for Large-Scale Clusters*. What is
kept of it: the model (section 4.4.1, appendix A.1), its solution rule (4.4.2) and the level that only holds seats back
(A.3). What Kubernetes does itself by now is left to it: lists come from the watch cache, levels borrow from each other.

`curve`, `queueing`, `sizing`, `allocation`, `weights`, `whole` and `shares` are pure: numbers in, numbers out.
"""
