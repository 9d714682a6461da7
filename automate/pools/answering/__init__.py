"""Answering a round of evaluation: the questions of work.jsonl asked of a fleet's model servers."""
