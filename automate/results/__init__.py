"""From games to conclusions: reads judgments and answers, computes scores, draws them. Never writes a record."""
