"""Further charts of Gaussians: (mu, Sigma), and (mu, standard deviation) for the diagonal family."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.errors import InputError
from natgrad.families import gaussian_fisher
from natgrad.families.chart import Chart, Coordinates
from natgrad.families.gaussian import Gaussian, Moments


def moment_chart(family: Gaussian) -> Chart:
    """(mu_i), (sigma_ii), (sigma_ij), of the full and the diagonal family: block-diagonal Fisher."""
    if not family.is_closed:
        raise InputError(
            "the entries of a covariance are not free coordinates where the precision has zeros; "
            "use theta or eta, or the full or diagonal family"
        )

    def split(point: Coordinates) -> Moments:
        return point[: family.size], family.symmetric(point[family.size :])

    def coordinates(theta: Array) -> Coordinates:
        return family.pack(*family.moments(theta))

    def fisher(point: Coordinates) -> Float[Array, "parameter parameter"]:
        return gaussian_fisher.moment_fisher(jnp.linalg.inv(split(point)[1]), family.rows, family.columns)

    return Chart(lambda point: family.of_moments(*split(point)), coordinates, fisher)


def deviation_chart(family: Gaussian) -> Chart:
    """(mu_i), (sd_i) of the diagonal family: Fisher 1 / sd^2 and 2 / sd^2; for one variable a half plane."""
    if family.edges:
        raise InputError(
            f"(mean, standard deviation) is a chart of the diagonal family only, and this one has "
            f"{len(family.edges)} edges; use (mean, covariance)"
        )
    size = family.size

    def natural(point: Coordinates) -> Array:
        precision = point[size:] ** -2
        return jnp.concatenate([point[:size] * precision, -precision / 2])

    def coordinates(theta: Array) -> Coordinates:
        variance = -1 / (2 * theta[size:])
        return jnp.concatenate([theta[:size] * variance, jnp.sqrt(variance)])

    def fisher(point: Coordinates) -> Float[Array, "parameter parameter"]:
        precision = point[size:] ** -2
        return jnp.diag(jnp.concatenate([precision, 2 * precision]))

    return Chart(natural, coordinates, fisher)
