"""nodeagent doctor: judgements on values, and states that are made for real in the testbed."""
