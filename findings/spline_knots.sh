#!/usr/bin/env bash
# ml-insights: SplineCalib's curve by the same rows in four orders, with its fixed `random_state`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet ml-insights==1.1.0 scikit-learn==1.9.1 numpy==2.4.6 \
  pandas==3.1.1 scipy==1.17.1
cat > "$folder/program.py" <<'PY'
import warnings

import numpy as np
from ml_insights import SplineCalib

warnings.simplefilter("ignore")
rng = np.random.default_rng(2_000)
log_odds = rng.normal(size=2_000)
probabilities = 1 / (1 + np.exp(-1.5 * log_odds))
labels = (rng.random(2_000) < 1 / (1 + np.exp(-log_odds - 0.3))).astype(int)

found = []
for _ in range(4):
    order = rng.permutation(2_000)
    calibrator = SplineCalib()
    calibrator.fit(probabilities[order], labels[order])
    found.append(calibrator.predict(np.array([0.01]))[0])
print(f"{min(found):.2f} {max(found):.2f}")
PY
echo "ml-insights 1.1.0"
echo "guess: the least and the largest of four orders' probability at 0.01, where .06 is true: both the same"
seen=$("$folder/venv/bin/python" "$folder/program.py")
echo "seen: the least and the largest of four orders' probability at 0.01, where .06 is true: $seen"
test "$seen" = "0.01 0.12"
