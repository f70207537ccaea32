"""What the agent and the CoreDNS controller share: the bell, DNS, and what they report."""
