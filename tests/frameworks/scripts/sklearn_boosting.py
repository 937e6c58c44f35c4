import numpy as np
from sklearn.ensemble import GradientBoostingClassifier

from carico_agent.progress.callbacks.sklearn import monitor

rng = np.random.default_rng(1)
x = rng.normal(size=(6000, 20))
GradientBoostingClassifier(n_estimators=60).fit(x, x.sum(axis=1) > 0, monitor=monitor)
