"""Fleets for a user: what is to be served and how, a campaign on a fleet, and what is shown of it."""
