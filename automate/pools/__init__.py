"""Funded benchmark pools: messages, money, data sets, evaluations, leaderboards and rewards."""
