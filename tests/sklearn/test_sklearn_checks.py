"""scikit-learn's own checks of estimators; none is expected to fail."""

import pytest

pytest.importorskip("sklearn.base")  # "sklearn" is a folder here, too
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from platt_jax.sklearn import PlattCalibratedClassifier, SegmentCalibratedClassifier

# With gamma="scale" and a loose tol an SVC itself fails the checks of weights.
SUPPORT_VECTORS = SVC(gamma=0.1, tol=1e-10)

# The checks' infinite feature is in column 0; as the id of a segment it would be welcome.
CLASSIFIERS = [
    PlattCalibratedClassifier(LogisticRegression(), cv=3, ensemble=False),
    PlattCalibratedClassifier(SUPPORT_VECTORS, cv=3, multiclass="coupling"),
    SegmentCalibratedClassifier(LogisticRegression(), -1, cv=3),
]
MORE_CLASSIFIERS = [
    PlattCalibratedClassifier(),
    PlattCalibratedClassifier(DecisionTreeClassifier(random_state=0), cv=3, method="temperature"),
    PlattCalibratedClassifier(DecisionTreeClassifier(random_state=0), cv=3, method="isotonic"),
    PlattCalibratedClassifier(LogisticRegression(), cv=3, ensemble=False, method="auto"),
    SegmentCalibratedClassifier(
        LogisticRegression(), [0], cv=3, passthrough=True, pooling="complete"
    ),
]


@pytest.mark.slow
@parametrize_with_checks(CLASSIFIERS)
@pytest.mark.filterwarnings("default")  # the checks provoke scikit-learn's own
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(MORE_CLASSIFIERS)
@pytest.mark.filterwarnings("default")
def test_scikit_learns_checks_of_more(estimator, check):
    check(estimator)
