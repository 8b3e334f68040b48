"""The error for an optional package that is not installed."""


def not_installed(feature: str, extra: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return an error that names the missing package and the extra of posenc that contains it."""
    return ModuleNotFoundError(f"{feature} needs {error.name}; to install it: pip install 'posenc[{extra}]'", name=error.name)
