"""The server decides how many: rules, debt, interval, solver and whole-sample allocation."""
