"""What models are made of: Bernoulli layers, networks, output distributions, random numbers."""
