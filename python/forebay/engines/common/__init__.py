"""What the connectors of several engines share. It imports no engine."""
