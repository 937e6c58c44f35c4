import numpy as np
from lightgbm import LGBMClassifier

from carico_agent.progress.callbacks.lightgbm import progress

rng = np.random.default_rng(1)
x = rng.normal(size=(80_000, 50))
LGBMClassifier(n_estimators=150, num_leaves=255, n_jobs=1, verbose=-1).fit(x, x.sum(axis=1) > 0, callbacks=[progress])
