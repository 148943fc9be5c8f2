"""Jobs that end with a report: audits, drills, capacity. Where reports lie, and who writes them."""
