"""What the agent and the CoreDNS controller share: the driver of passes, DNS, and what they report."""
