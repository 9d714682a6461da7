"""Readers of judgment, answer and questions files of any version of Arena-Hard."""
