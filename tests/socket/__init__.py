"""The socket, spoken to by real clients over real processes."""
