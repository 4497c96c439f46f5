"""The model of labelling: how likely a class is present, learnt from incomplete labels."""
