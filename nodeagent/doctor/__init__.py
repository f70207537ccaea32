"""Is this node or cluster affected, why, and what is the best fix: `nodeagent doctor`.

`examination` gathers observations; all other modules are pure functions from observations to findings.
Nothing is changed.
"""
