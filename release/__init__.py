"""What a release is made of and checked by; no part of the package that is installed."""
