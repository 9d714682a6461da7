"""Answers of models to a bench's questions: where a model comes from, how it is asked, what its rows hold."""
