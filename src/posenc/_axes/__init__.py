"""Tables with separate columns for each axis: of grids, and of points with several coordinates."""
