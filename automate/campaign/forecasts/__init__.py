"""What a plan will take: rates learned from earlier starts, estimates with intervals, proposals."""
