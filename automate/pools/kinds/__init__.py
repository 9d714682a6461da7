"""Kinds of data sets: how rows are read, asked, understood and scored."""
