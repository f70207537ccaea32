"""What upstream DNS says of a name, asked past /etc/hosts: which servers, and the asking itself."""
