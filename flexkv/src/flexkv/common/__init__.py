"""What both ends of the integration know."""
