"""What DNS says of the names that need proof, asked in the background: when, and by which threads."""
