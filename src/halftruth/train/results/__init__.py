"""Results of a run: scores, decisions, predictions for new rows, evaluation, verified cells."""
