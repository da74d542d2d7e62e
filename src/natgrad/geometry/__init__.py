"""Moving on a family: geodesics and exponential maps of its three connections, and cheaper retractions."""
