"""Many symmetric matrices (2, 2), by arrays of their entries: LAPACK takes them one by one."""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray


class Symmetric(NamedTuple):
    """Symmetric matrices (2, 2) of A and B."""

    AA: NDArray[np.float64]
    AB: NDArray[np.float64]
    BB: NDArray[np.float64]

    @classmethod
    def of(cls, matrices: Any) -> Self:
        """Those of an array (K, 2, 2)."""
        return cls(matrices[:, 0, 0], matrices[:, 0, 1], matrices[:, 1, 1])

    @property
    def matrices(self) -> NDArray[np.float64]:
        """(K, 2, 2)."""
        return np.stack([np.stack([self.AA, self.AB], -1), np.stack([self.AB, self.BB], -1)], -2)

    def plus(self, matrix: NDArray[Any]) -> "Symmetric":
        """With one matrix added to each."""
        return Symmetric(self.AA + matrix[0, 0], self.AB + matrix[0, 1], self.BB + matrix[1, 1])

    def times(self, A: Any, B: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Each by its vector."""
        return self.AA * A + self.AB * B, self.AB * A + self.BB * B

    @property
    def determinant(self) -> NDArray[np.float64]:
        """Of each."""
        return self.AA * self.BB - self.AB * self.AB

    @property
    def adjugate(self) -> "Symmetric":
        """Of each: the inverse times the determinant."""
        return Symmetric(self.BB, -self.AB, self.AA)

    def inverse(self) -> "Symmetric":
        """Of each."""
        return Symmetric(*(x / self.determinant for x in self.adjugate))

    def factor(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """The lower triangles (AA, BA, BB) of their Cholesky factors."""
        AA = np.sqrt(self.AA)
        BA = self.AB / AA
        return AA, BA, np.sqrt(self.BB - BA * BA)

    def positive_part(self) -> "Symmetric":
        """The matrices with 0 for their negative eigenvalues."""
        middle, half = (self.AA + self.BB) / 2, (self.AA - self.BB) / 2
        radius = np.hypot(half, self.AB)
        low, high = middle - radius, np.maximum(middle + radius, 0)
        # The projection on the larger one's eigenvector is (M - low) / (high - low).
        share = np.where(low >= 0, 1, high / np.where(radius > 0, 2 * radius, 1))
        rest = np.where(low >= 0, 0, share * low)
        return Symmetric(share * self.AA - rest, share * self.AB, share * self.BB - rest)
