import numpy as np
import xgboost

from carico_agent.progress.callbacks.xgboost import XGBoostProgress

rng = np.random.default_rng(1)
x = rng.normal(size=(60_000, 50))
data = xgboost.DMatrix(x, x.sum(axis=1) > 0)
xgboost.train({"max_depth": 9, "nthread": 1, "objective": "binary:logistic"}, data, 25, callbacks=[XGBoostProgress(25)])
