"""Pools over HTTP: messages, a leaderboard page, an OpenAPI document."""
