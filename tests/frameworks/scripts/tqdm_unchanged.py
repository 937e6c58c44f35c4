import time

from tqdm.auto import tqdm

with tqdm(total=40) as bar:
    for _ in range(40):
        time.sleep(0.1)
        bar.update()
