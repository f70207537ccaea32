"""What nodeagent costs a node, and how fast it is: measured on the real daemon in the testbed.

    make bench
    python -m benchmarks --only latency --names 1000 --json figures.json

`nodeagent run` runs in the testbed's node1; the simulated API server of the tests answers it over HTTP.

- api, daemon: the API server and the agent, as processes in the testbed
- entering, watching: sees from outside a hosts file renamed and a DNAT element committed, without polling
- latency, resources, everything, verification, decisions, redirects, api_server: what is measured
- figures, report: the numbers, their goals, and how they are shown
"""
