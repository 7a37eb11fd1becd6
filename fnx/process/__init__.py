"""What belongs to the process: devices, meshes, settings, NaN checks, costs, profiles, its cache."""
