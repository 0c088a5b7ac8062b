"""Many symmetric 2 by 2 matrices as arrays of their entries: LAPACK takes them one by one."""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from platt_jax.population.places import namespace


class Symmetric(NamedTuple):
    """Symmetric matrices (2, 2) over (A, B)."""

    AA: NDArray[np.float64]
    AB: NDArray[np.float64]
    BB: NDArray[np.float64]

    @classmethod
    def of(cls, matrices: Any) -> Self:
        """The matrices of an array (..., 2, 2)."""
        return cls(matrices[..., 0, 0], matrices[..., 0, 1], matrices[..., 1, 1])

    @property
    def matrices(self) -> NDArray[np.float64]:
        """The matrices as an array (..., 2, 2)."""
        flat = namespace(self.AA).stack([self.AA, self.AB, self.AB, self.BB], -1)
        stacked: NDArray[np.float64] = flat.reshape((*flat.shape[:-1], 2, 2))
        return stacked

    def plus(self, other: "NDArray[Any] | Symmetric") -> "Symmetric":
        """The sum of each matrix and a matrix (2, 2), or its own other one."""
        added = other if isinstance(other, Symmetric) else Symmetric.of(other)
        return Symmetric(self.AA + added.AA, self.AB + added.AB, self.BB + added.BB)

    def scaled(self, by: Any) -> "Symmetric":
        """Each matrix times a number, one for all or its own."""
        return Symmetric(by * self.AA, by * self.AB, by * self.BB)

    def times(self, A: Any, B: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The product of each matrix and its vector (A, B)."""
        return self.AA * A + self.AB * B, self.AB * A + self.BB * B

    def product(self, other: "Symmetric") -> "Square":
        """The product of each matrix and its other one."""
        (AA, BA), (AB, BB) = self.times(other.AA, other.AB), self.times(other.AB, other.BB)
        return Square(AA, AB, BA, BB)

    def symmetric_product(self, other: "Square") -> "Symmetric":
        """The symmetric part of the product of each matrix and its other one."""
        AB = self.AA * other.AB + self.AB * other.BB
        BA = self.AB * other.AA + self.BB * other.BA
        return Symmetric(
            self.AA * other.AA + self.AB * other.BA,
            (AB + BA) / 2,
            self.AB * other.AB + self.BB * other.BB,
        )

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
        # Not times the inverse determinant, which rounds twice: nearly singular matrices, such as
        # from a score of 1e9 among scores near 1, amplify the difference to percents.
        determinant = self.determinant
        return Symmetric(*(x / determinant for x in self.adjugate))

    def factor(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """The lower triangle (AA, BA, BB) of each matrix's Cholesky factor."""
        xp = namespace(self.AA)
        AA = xp.sqrt(self.AA)
        BA = self.AB / AA
        return AA, BA, xp.sqrt(self.BB - BA * BA)

    def positive_part(self) -> "Symmetric":
        """The matrices with negative eigenvalues replaced by 0."""
        xp = namespace(self.AA)
        middle, half = (self.AA + self.BB) / 2, (self.AA - self.BB) / 2
        radius = xp.hypot(half, self.AB)
        low, high = middle - radius, xp.maximum(middle + radius, 0)
        # The projection onto the eigenvector of the larger eigenvalue is (M - low) / (high - low).
        share = xp.where(low >= 0, 1, high / xp.where(radius > 0, 2 * radius, 1))
        shift = xp.where(low >= 0, 0, share * low)
        return Symmetric(share * self.AA - shift, share * self.AB, share * self.BB - shift)


class Square(NamedTuple):
    """Matrices (2, 2) over (A, B)."""

    AA: NDArray[np.float64]
    AB: NDArray[np.float64]
    BA: NDArray[np.float64]
    BB: NDArray[np.float64]

    @classmethod
    def of(cls, matrices: Any) -> Self:
        """The matrices of an array (..., 2, 2)."""
        (AA, AB), (BA, BB) = ((matrices[..., i, 0], matrices[..., i, 1]) for i in range(2))
        return cls(AA, AB, BA, BB)

    def plus_identity(self, by: float = 1.0) -> "Square":
        """The matrices plus a multiple of the identity."""
        return self._replace(AA=self.AA + by, BB=self.BB + by)

    def scaled(self, by: Any) -> "Square":
        """Each matrix times a number, one for all or its own."""
        return Square(by * self.AA, by * self.AB, by * self.BA, by * self.BB)

    @property
    def determinant(self) -> NDArray[np.float64]:
        """The determinant of each matrix."""
        return self.AA * self.BB - self.AB * self.BA

    def inverse(self) -> "Square":
        """The inverse of each matrix."""
        determinant = self.determinant  # see `Symmetric.inverse`
        adjugate = self.BB, -self.AB, -self.BA, self.AA
        return Square(*(x / determinant for x in adjugate))

    def times(self, A: Any, B: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The product of each matrix and its vector (A, B)."""
        return self.AA * A + self.AB * B, self.BA * A + self.BB * B

    def transposed_times(self, A: Any, B: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The product of each transposed matrix and its vector (A, B)."""
        return self.AA * A + self.BA * B, self.AB * A + self.BB * B

    def congruent(self, inner: Symmetric) -> Symmetric:
        """M C M' for each matrix M and its inner matrix C."""
        row_A, row_B = inner.times(self.AA, self.AB), inner.times(self.BA, self.BB)
        return Symmetric(
            row_A[0] * self.AA + row_A[1] * self.AB,
            row_A[0] * self.BA + row_A[1] * self.BB,
            row_B[0] * self.BA + row_B[1] * self.BB,
        )
