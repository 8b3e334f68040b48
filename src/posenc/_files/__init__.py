"""Table files (.npy, .safetensors and .zarr): atomic writing, reading, and verification."""

from posenc._files.files import File, open, save, verify  # noqa: A004

__all__ = ["File", "open", "save", "verify"]
