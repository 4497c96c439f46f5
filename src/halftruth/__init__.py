"""Multi-label learning when the labels tell only half the truth."""
