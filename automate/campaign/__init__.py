"""What ties the rooms together for a user: plans, runs, the monitor, the demo."""
