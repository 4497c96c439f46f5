"""Runs with thousands of classes: sparse labels, sampled classes, no (N, K) matrix."""
