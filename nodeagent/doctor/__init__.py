"""Is this node or cluster affected, by what, and what is the best remedy: `nodeagent doctor`.

Observations are gathered by `examination`; every judgement beside it is a pure function from observations to
findings. Nothing is changed.
"""
