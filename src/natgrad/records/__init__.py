"""What a run leaves behind: config, trace, states, environment."""
