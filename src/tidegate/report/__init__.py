"""Tables, figures and pages about runs, simulated or on a fleet."""
