"""What people deploy, held to transformers: `python -m tools.published_configs --help`."""
