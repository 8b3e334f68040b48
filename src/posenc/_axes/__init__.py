"""Tables with separate columns for each axis, for grids and for points with several coordinates."""
