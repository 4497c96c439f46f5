"""The ensemble of `auto`: members on features, their weights, and hints."""
