"""Helpers of this package; none of them is a promise to users."""
