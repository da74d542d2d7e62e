"""What things cost, as ratios in one run."""
