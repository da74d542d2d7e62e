"""Networks that learn targets from inputs: perceptrons, convolutional networks, autoencoders."""
