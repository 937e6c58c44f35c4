"""A small Kubernetes client on aiohttp, for those who publish (publish/) and those who schedule (schedule/).

Those two are siblings and do not see each other, so what both need lives one layer below, beside settings and
supervise. It knows nothing of carico's settings: the code that builds a client hands over an `Access`.

Why no library: kubernetes_asyncio costs 63 MB resident (measured), for GET, PATCH, POST, LIST and WATCH of two
workloads.
"""
