"""The main job: the Lotka-Volterra equations fitted to a century-old record of lynx and hares."""
