"""How members of named axes exchange arrays: implementations of the protocol in core/transport.py."""
