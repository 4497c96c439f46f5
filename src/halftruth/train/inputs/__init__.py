"""Inputs of a run by row number: images, features, text, and the order of the batches."""
