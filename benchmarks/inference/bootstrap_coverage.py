"""How often bootstrap intervals of 95 % hold the truth.

``python -m benchmarks.inference.bootstrap_coverage`` writes
results/inference/bootstrap-coverage.json. Where the true curve is no sigmoid, the truth is the
sigmoid nearest to it: that of infinitely many rows.
"""

import time

import numpy as np

import platt_jax as pj
from benchmarks import machine
from benchmarks.inference import command
from platt_jax.inference import robust_covariance
from platt_jax.inference.bootstrap import INTERVAL_KINDS

AT = np.array([-1.0, 0.0, 2.0])


def expit(x):
    return 1 / (1 + np.exp(-x))


# Probabilities at scores, which are standard normal, or Student's of 3 degrees of freedom.
CURVES = {
    "sigmoid": lambda f: expit(f + 0.3),
    "plateaus": lambda f: 0.1 + 0.6 * expit(4 * f),
    "step": lambda f: np.where(f > 0, 0.85, 0.25),
    "not in the tails": lambda f: np.where(np.abs(f) > 1.5, 0.5, expit(3 * f)),
    "plateaus, heavy-tailed scores": lambda f: 0.1 + 0.6 * expit(4 * f),
    "rare": lambda f: 0.01 + 0.2 * expit(4 * f - 4),
}
# Curve, rows, replicates, kind of weights, targets.
CASES = [
    (curve, rows, replicates, "poisson", "none")
    for curve, several in (
        ("sigmoid", (50, 100, 400)),
        ("plateaus", (50, 100, 400)),
        ("step", (100,)),
        ("not in the tails", (100,)),
        ("plateaus, heavy-tailed scores", (100,)),
        ("rare", (300, 1000)),
    )
    for rows in several
    for replicates in (200, 400)
] + [
    ("sigmoid", 100, 200, "bayesian", "none"),
    ("plateaus", 100, 200, "bayesian", "none"),
    ("plateaus", 100, 200, "poisson", "platt"),
    ("not in the tails", 100, 200, "poisson", "platt"),
]
# Clusters, rows of each.
CLUSTERED = [(25, 10), (50, 10), (100, 10), (100, 4)]


def main() -> None:
    parser = command.options("bootstrap_coverage")
    parser.add_argument("--problems", type=int, default=2000, metavar="K")
    args = parser.parse_args()
    found: dict = {"machine": machine.describe(), "problems": args.problems}
    for name, cases, of_case in (
        ("rows", CASES, of_rows),
        ("clusters", CLUSTERED, of_clusters),
    ):
        found[name] = command.printed(of_case(*case, args.problems) for case in cases)
    command.write(args.out, "bootstrap-coverage", found)


def of_rows(curve: str, rows: int, replicates: int, kind: str, targets: str, problems: int) -> dict:
    """Shares of intervals of A and B, and of bands at three scores, that hold the truth."""
    rng = np.random.default_rng(0)
    heavy = curve.endswith("heavy-tailed scores")
    scores = rng.standard_t(3, (problems, rows)) if heavy else rng.normal(size=(problems, rows))
    labels = rng.random(scores.shape) < CURVES[curve](scores)
    start = time.perf_counter()
    made = pj.inference.bootstrap(
        scores, labels, kind=kind, replicates=replicates, options=pj.Options(targets=targets)
    )
    line = {
        "curve": curve,
        "rows": rows,
        "replicates": replicates,
        "kind": kind,
        "targets": targets,
        "seconds": round(time.perf_counter() - start, 1),
    }
    return line | covered(made, *nearest(CURVES[curve], heavy))


def of_clusters(clusters: int, rows: int, problems: int) -> dict:
    """The same where rows of a cluster share a score's part and a part of the log-odds."""
    problems = min(problems, 500)
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(clusters), rows)
    shared = rng.normal(size=(problems, clusters))[:, cluster]
    scores = 0.8 * shared + 0.6 * rng.normal(size=shared.shape)
    logit = scores + 0.3 + rng.normal(size=(problems, clusters))[:, cluster]
    labels = rng.random(scores.shape) < expit(logit)
    x = np.linspace(-6, 6, 201)
    # The marginal curve: the mean over the clusters' parts.
    of_all = nearest(
        lambda f: (
            (expit(f[:, None] + 0.3 + x) * np.exp(-x * x / 2)).sum(1) / (np.exp(-x * x / 2).sum())
        )
    )
    options = pj.Options(targets="none")
    line: dict = {"clusters": clusters, "rows of each": rows}
    for name, given in (("clusters", cluster), ("rows", None)):
        made = pj.inference.bootstrap(scores, labels, clusters=given, options=options)
        line[f"drawn by {name}"] = covered(made, *of_all)
    robust = robust_covariance(made.fit, scores, labels, clusters=cluster, options=options)
    off = 1.96 * robust.standard_errors
    line["robust_covariance"] = share(made.fit.A, made.fit.B, off, of_all)
    return line


def covered(made: pj.inference.Bootstrap, A: float, B: float) -> dict:
    line: dict = {}
    for kind in INTERVAL_KINDS:
        lower, upper = made.interval(kind=kind)
        inside = (lower <= (A, B)) & (upper >= (A, B))
        length = np.nanmedian(upper - lower, axis=0)
        lower, upper = made.band(AT, kind=kind)
        truth = expit(-(A * AT + B))
        line[kind] = {
            "A, B": inside.mean(0).round(4).tolist(),
            "band": ((lower <= truth) & (truth <= upper)).mean(0).round(4).tolist(),
            "median length": length.round(3).tolist(),
        }
    off = 1.96 * made.fit.standard_errors
    line["hessian"] = share(made.fit.A, made.fit.B, off, (A, B))
    line["left out"] = float(made.failed.mean())
    return line


def share(A, B, off, truth) -> list[float]:
    inside: list[float] = (np.abs(np.stack([A, B], -1) - truth) <= off).mean(0).round(4).tolist()
    return inside


def nearest(curve, heavy: bool = False) -> tuple[float, float]:
    """(A, B) of the sigmoid nearest to a curve, of standard normal scores, or heavy-tailed ones."""
    f = np.linspace(-6, 6, 4001)
    density = np.exp(-f * f / 2)
    if heavy:
        f = 50 * np.sign(f) * (f / 6) ** 2
        density = np.abs(f) ** 0.5 / (1 + f * f / 3) ** 2
    p = curve(f)
    both = np.concatenate([f, f]), np.repeat([1, 0], len(f))
    weights = np.concatenate([density * p, density * (1 - p)])
    fit = pj.fit(*both, weights=weights, options=pj.Options(targets="none"))
    return float(fit.A), float(fit.B)


if __name__ == "__main__":
    main()
