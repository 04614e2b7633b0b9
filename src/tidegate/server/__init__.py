"""What runs beside the SuperLink: accounts, ledger, fleet, and the controller that decides."""
