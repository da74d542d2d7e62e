"""How a solve ended: the codes of `natgrad.core.Solution.result`."""

CONVERGED, LIMIT, INDEFINITE, SINGULAR, FAILED, ILL_CONDITIONED = range(6)
SOLVED = {
    CONVERGED: "the stopping rule was met",
    LIMIT: "the limit of iterations came before the stopping rule",
    INDEFINITE: "a direction of negative curvature was met and the iterate before it returned; "
    "raise the damping or use a metric that is positive semi-definite",
    SINGULAR: "the system is singular, and its least-squares solution of minimum length was returned",
    FAILED: "the solution is not finite, or wrong; raise the damping",
    ILL_CONDITIONED: "the system is so ill-conditioned that hardly a digit of the solution is sure; "
    "raise the damping or compute in float64",
}
