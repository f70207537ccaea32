"""Is this node or cluster affected, why, and what is the best fix: `nodeagent doctor`.

`examination` gathers observations, and changes nothing; all other modules are pure functions of these.
"""
