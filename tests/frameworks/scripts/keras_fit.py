import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

from carico_agent.progress.callbacks.keras import KerasProgress

rng = np.random.default_rng(1)
x = rng.normal(size=(20_000, 64))
model = keras.Sequential([keras.layers.Dense(512, "relu"), keras.layers.Dense(512, "relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(x, x.sum(axis=1), epochs=4, batch_size=64, verbose=0, callbacks=[KerasProgress()])
