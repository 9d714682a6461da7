"""Scores with intervals, style control, comparisons, quality of the judge."""
