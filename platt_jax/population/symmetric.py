"""Many symmetric 2 by 2 matrices as arrays of their entries: LAPACK takes them one by one."""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray


class Symmetric(NamedTuple):
    """Symmetric matrices (2, 2) over (A, B)."""

    AA: NDArray[np.float64]
    AB: NDArray[np.float64]
    BB: NDArray[np.float64]

    @classmethod
    def of(cls, matrices: Any) -> Self:
        """The matrices of an array (K, 2, 2)."""
        return cls(matrices[:, 0, 0], matrices[:, 0, 1], matrices[:, 1, 1])

    @property
    def matrices(self) -> NDArray[np.float64]:
        """The matrices as an array (K, 2, 2)."""
        return np.stack([np.stack([self.AA, self.AB], -1), np.stack([self.AB, self.BB], -1)], -2)

    def plus(self, matrix: NDArray[Any]) -> "Symmetric":
        """The sum of each matrix and a matrix (2, 2)."""
        return Symmetric(self.AA + matrix[0, 0], self.AB + matrix[0, 1], self.BB + matrix[1, 1])

    def times(self, A: Any, B: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The product of each matrix and its vector (A, B)."""
        return self.AA * A + self.AB * B, self.AB * A + self.BB * B

    @property
    def determinant(self) -> NDArray[np.float64]:
        """The determinant of each matrix."""
        return self.AA * self.BB - self.AB * self.AB

    @property
    def adjugate(self) -> "Symmetric":
        """The adjugate of each matrix: its inverse times its determinant."""
        return Symmetric(self.BB, -self.AB, self.AA)

    def inverse(self) -> "Symmetric":
        """The inverse of each matrix."""
        return Symmetric(*(x / self.determinant for x in self.adjugate))

    def factor(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """The lower triangle (AA, BA, BB) of each matrix's Cholesky factor."""
        AA = np.sqrt(self.AA)
        BA = self.AB / AA
        return AA, BA, np.sqrt(self.BB - BA * BA)

    def positive_part(self) -> "Symmetric":
        """The matrices with negative eigenvalues replaced by 0."""
        middle, half = (self.AA + self.BB) / 2, (self.AA - self.BB) / 2
        radius = np.hypot(half, self.AB)
        low, high = middle - radius, np.maximum(middle + radius, 0)
        # The projection onto the eigenvector of the larger eigenvalue is (M - low) / (high - low).
        share = np.where(low >= 0, 1, high / np.where(radius > 0, 2 * radius, 1))
        rest = np.where(low >= 0, 0, share * low)
        return Symmetric(share * self.AA - rest, share * self.AB, share * self.BB - rest)
