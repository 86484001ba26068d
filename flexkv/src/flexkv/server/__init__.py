"""The rank's end."""
