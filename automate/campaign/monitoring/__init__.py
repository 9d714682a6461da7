"""The monitor's picture of a campaign, and its reasons in words."""
