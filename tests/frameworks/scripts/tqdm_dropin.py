import time

from carico_agent.progress.callbacks.tqdm import tqdm, trange

for _ in tqdm(["a", "b", "c", "d"]):
    for _ in trange(10, leave=False):
        time.sleep(0.1)
