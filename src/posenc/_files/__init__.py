"""Table files (.npy, .safetensors and .zarr): atomic writing, reading, and verification."""
