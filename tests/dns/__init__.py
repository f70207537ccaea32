"""Which DNS servers are asked, and what their answers are read as."""
