"""Files of tables: .npy, .safetensors and .zarr.  Written completely or not at all, read, verified."""
