"""What all other primitives are written with: linear maps, broadcasting, axes, accumulation."""
