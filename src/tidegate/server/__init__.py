"""The server side: accounts, ledger, fleet, and the controller that decides."""
