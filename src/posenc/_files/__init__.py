"""Table files (.npy, .safetensors and .zarr): atomic writing, and reading."""
