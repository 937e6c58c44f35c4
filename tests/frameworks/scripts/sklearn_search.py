import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from carico_agent.progress.callbacks.sklearn import SearchProgress

rng = np.random.default_rng(1)
x = rng.normal(size=(6000, 60))
y = (x.sum(axis=1) > 0) + (x[:, 0] > 1)
search = GridSearchCV(
    LogisticRegression(max_iter=400, solver="saga", tol=1e-9), {"C": [0.1, 0.5, 1.0, 2.0]}, cv=3, n_jobs=2
)
search.set_callbacks(SearchProgress()).fit(x, y)
