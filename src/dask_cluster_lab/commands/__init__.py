"""What stands behind the make targets; lessons do not use it."""
