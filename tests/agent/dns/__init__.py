"""When names are asked of DNS, and what is made of the answers over time."""
