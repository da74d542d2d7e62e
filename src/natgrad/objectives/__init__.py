"""What is minimised: value, gradient and the draws behind them."""
