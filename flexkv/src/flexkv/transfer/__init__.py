"""Layer-wise loads."""
