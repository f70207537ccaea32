"""All nodes at a glance: which should have an agent, and what each says of itself (`nodeagent fleet`)."""
