"""Reports of replays as JSON, HTML and plots, and comparisons of them."""
