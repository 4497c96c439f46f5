"""Pages about a run and about an audit, each one HTML file."""
