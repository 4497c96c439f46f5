"""Pages for people: the report of a run and of an audit, each one HTML file."""
