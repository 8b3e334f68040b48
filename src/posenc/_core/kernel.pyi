from typing import Any

def __getattr__(name: str) -> Any: ...      # kernel.pyx has the signatures
