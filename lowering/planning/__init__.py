"""What is decided of a jaxpr before code is generated: what fuses, the order of equations, aliases."""
