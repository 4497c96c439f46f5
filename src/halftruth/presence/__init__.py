"""The model of labelling: how likely each class is present, estimated from incomplete labels."""
