"""Platt scaling for thousands of classifiers, fitted by one compiled program.

The module of a name is imported when the name is first used (SPEC 1 of scientific Python).
"""

from typing import TYPE_CHECKING

from platt_jax.version import __version__ as __version__

if TYPE_CHECKING:
    from platt_jax import curves as curves
    from platt_jax import distributed as distributed
    from platt_jax import environment as environment
    from platt_jax import export as export
    from platt_jax import inference as inference
    from platt_jax import metrics as metrics
    from platt_jax import plots as plots
    from platt_jax import report as report
    from platt_jax import streaming as streaming
    from platt_jax.api import fit as fit
    from platt_jax.api import fit_one_vs_rest as fit_one_vs_rest
    from platt_jax.api import fit_segments as fit_segments
    from platt_jax.decisions.certify import certify as certify
    from platt_jax.decisions.gate import gate as gate
    from platt_jax.execution.class_rows import ClassRows as ClassRows
    from platt_jax.execution.segment_rows import SegmentRows as SegmentRows
    from platt_jax.execution.solve import solve as solve
    from platt_jax.hypothesis_tests.triage import triage as triage
    from platt_jax.model.prior import GaussianPrior as GaussianPrior
    from platt_jax.monitoring.monitor import Monitor as Monitor
    from platt_jax.multiclass.fitting import fit_multiclass as fit_multiclass
    from platt_jax.options import Options as Options
    from platt_jax.results.files import load as load
    from platt_jax.results.files import save as save
    from platt_jax.results.fit import Fit as Fit
    from platt_jax.results.multiclass import MulticlassCalibrator as MulticlassCalibrator
    from platt_jax.results.one_vs_rest import OneVsRestCalibrator as OneVsRestCalibrator
    from platt_jax.results.probabilities import logit as logit
    from platt_jax.results.segment_calibrator import SegmentCalibrator as SegmentCalibrator
    from platt_jax.results.sigmoid import Sigmoid as Sigmoid
    from platt_jax.status import Flag as Flag
    from platt_jax.status import Status as Status
    from platt_jax.updating.update import update as update
else:  # a type checker would take __getattr__ to mean that every name exists
    from importlib import import_module as _import_module

    _NAMES = {
        "api": ("fit", "fit_one_vs_rest", "fit_segments"),
        "decisions.certify": ("certify",),
        "decisions.gate": ("gate",),
        "execution.class_rows": ("ClassRows",),
        "execution.segment_rows": ("SegmentRows",),
        "execution.solve": ("solve",),
        "hypothesis_tests.triage": ("triage",),
        "model.prior": ("GaussianPrior",),
        "monitoring.monitor": ("Monitor",),
        "multiclass.fitting": ("fit_multiclass",),
        "options": ("Options",),
        "results.files": ("load", "save"),
        "results.fit": ("Fit",),
        "results.multiclass": ("MulticlassCalibrator",),
        "results.one_vs_rest": ("OneVsRestCalibrator",),
        "results.probabilities": ("logit",),
        "results.segment_calibrator": ("SegmentCalibrator",),
        "results.sigmoid": ("Sigmoid",),
        "status": ("Flag", "Status"),
        "updating.update": ("update",),
    }
    _MODULES = {name: module for module, names in _NAMES.items() for name in names}
    _PACKAGES = {"curves", "distributed", "environment", "export", "inference"}
    _PACKAGES |= {"metrics", "plots", "report", "streaming"}
    # Names of a room that are found at the top as well, but not listed there.
    _IN_ROOMS = {
        **dict.fromkeys(("bootstrap", "choose_curve", "leave_one_out"), "inference"),
        **dict.fromkeys(("estimate_means", "estimate_rates", "compare_means"), "inference"),
        **dict.fromkeys(("estimate_drift", "judge_pooling", "profile_spreads"), "inference"),
        **dict.fromkeys(("Bootstrap", "CurveChoice", "Drift"), "inference"),
        **dict.fromkeys(("show_config", "use_compilation_cache"), "environment"),
        "summarize_centres": "metrics",
    }

    __all__ = sorted(_MODULES)

    def __getattr__(name):
        if name in _PACKAGES:
            return _import_module(f"{__name__}.{name}")
        module = _MODULES.get(name) or _IN_ROOMS.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = getattr(_import_module(f"{__name__}.{module}"), name)
        return globals()[name]

    def __dir__():
        return sorted({*globals(), *_MODULES, *_PACKAGES} - _IN_ROOMS.keys())
