#!/usr/bin/env bash
# scikit-learn: temperature scaling by few rows, of which the classifier predicts every label.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet scikit-learn==1.9.1 numpy==2.4.6
cat > "$folder/program.py" <<'PY'
import warnings

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

rng = np.random.default_rng(0)
rows = rng.normal(size=(300, 2))
labels = (rows @ [[1, -1, 0.3], [0, 1, -1]] + rng.gumbel(size=(300, 3))).argmax(axis=1)
model = LogisticRegression().fit(rows, labels)
few = 2 * rng.normal(size=(12, 2))
few = few[np.argsort(model.predict(few), kind="stable")]
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    scaled = CalibratedClassifierCV(FrozenEstimator(model), method="temperature")
    scaled.fit(few, model.predict(few))
told = [x for x in told if "n_splits" not in str(x.message)]  # of the folds, which are not used
before, after = (
    -np.log(np.maximum(x.predict_proba(rows)[np.arange(300), labels], 1e-300)).mean()
    for x in (model, scaled)
)
print("warned," if told else "silent,", "worse by 5 nats a row" if after > 5 + before else "no worse")
PY
echo "scikit-learn 1.9.1"
echo "guess: warned, or no worse: a temperature of 12 rows that are all predicted right is held back"
seen=$("$folder/venv/bin/python" "$folder/program.py")
echo "seen: $seen"
test "$seen" = "silent, worse by 5 nats a row"
