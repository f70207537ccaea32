"""What the planner decides, and why: values in, values out."""
