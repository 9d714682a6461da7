"""Arena-Hard: questions, answers, games and their judgments."""
