"""Kueue's admission check `carico.dev/room`: a Workload is admitted when its Pods fit by measured room."""
