"""What a run can train, each behind one interface: a network, an ensemble, a model with a teacher.

`choose.choose_plan` picks the plan by method, labels and inputs; `Run` only calls it.
"""
