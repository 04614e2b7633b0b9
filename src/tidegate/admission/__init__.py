"""How many samples the server orders: rules, debt, interval, solver, whole-sample allocation."""
