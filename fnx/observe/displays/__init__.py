"""What notebooks show of arrays, tracers, functions, trees and shardings: static HTML and inline SVG."""
