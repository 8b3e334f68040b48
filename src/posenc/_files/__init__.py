"""Files of tables (.npy, .safetensors and .zarr): written atomically, read and verified."""
