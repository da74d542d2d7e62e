"""One training: its loop, its checks, its run folder, how it stops and how it continues."""
