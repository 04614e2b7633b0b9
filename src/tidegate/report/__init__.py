"""Tables and figures from simulated runs."""
