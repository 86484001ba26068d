"""What is behind the names of FlexKV. Nothing here is for others to import."""
