"""The document's three models, small (4.6, 5.1): ARPU, a linear regression; Saved, which takes ARPU's prediction as
input; Credit Card Fraud, a logistic regression. In a container: `python3 pipeline_job.py arpu|saved|fraud|infer`."""

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np

CUSTOMERS = 400


def customers() -> tuple[Any, Any, Any, Any]:
    """Attributes, discount wanted, whether the customer stays, whether a payment is fraudulent; made up, seeded."""
    drawn = np.random.default_rng(7)
    x = drawn.normal(size=(CUSTOMERS, 4))
    discount = x @ [3.0, -1.0, 0.5, 2.0] + drawn.normal(scale=0.1, size=CUSTOMERS)
    stays = (discount + x[:, 0] + drawn.normal(scale=0.1, size=CUSTOMERS) > 0).astype(float)
    return x, discount, stays, (x[:, 1] > 1.0).astype(int)


def model(name: str) -> Any:
    return pickle.loads(Path(os.environ[f"CARICO_DATA_{name.upper()}"]).read_bytes())


def save(name: str, made: Any) -> None:
    Path(os.environ[f"CARICO_OUT_{name.upper()}"]).write_bytes(pickle.dumps(made))


def main(what: str) -> None:
    from sklearn.linear_model import LinearRegression, LogisticRegression

    x, discount, stays, fraud = customers()
    if what == "arpu":
        save("arpu", LinearRegression().fit(x, discount))
    elif what == "saved":
        guessed = model("arpu").predict(x)
        save("saved", LinearRegression().fit(np.column_stack([x, guessed]), stays))
        print("arpu from", os.environ["CARICO_DATA_ARPU_URL"])
    elif what == "fraud":
        save("fraud", LogisticRegression().fit(x, fraud))
    else:
        guessed = model("arpu").predict(x)
        kept = model("saved").predict(np.column_stack([x, guessed]))
        print(f"arpu error {np.abs(guessed - discount).mean():.3f}")
        print(f"saved right {((kept > 0.5) == stays).mean():.3f}")
        print(f"fraud right {(model('fraud').predict(x) == fraud).mean():.3f}")


if __name__ == "__main__":
    main(sys.argv[1])
