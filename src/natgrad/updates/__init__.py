"""From a direction to the next model."""
