"""All nodes at a glance: which should have an agent, and what each reports (`nodeagent fleet`)."""
