"""The parser of a command: argparse, with plainer error messages that each have a hint."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable
from typing import Any, NoReturn

# regular expression that matches a message of argparse, and its replacement
REWORDED = (
    (r"the following arguments are required: (.+)", r"missing \1"),
    (r"argument (\S+): expected one argument", r"\1 has no value"),
    (r"argument (\S+): not allowed with argument (\S+)", r"\2 and \1 are both given, expected only one of them"),
    (r"argument (\S+): ignored explicit argument (.+)", r"\1 has the value \2, expected none"),
    (r"argument (\S+): invalid choice: (.+?)(?:, maybe you meant .+)? \(choose from (.+)\)", r"\1 is \2, expected one of \3"),
    (r"argument (\S+): (.+)", r"\1 \2"),
)


class UsageError(Exception):
    """An error in the program's command line; `args` has a message of one line, and a command or option to try."""


class Parser(argparse.ArgumentParser):
    """A parser that raises UsageError; it rejects abbreviated options, because a new option could make them ambiguous."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(allow_abbrev=False, **keywords)

    def check_options(self, words: Iterable[str]) -> None:
        """Raise UsageError for an unknown option, which argparse would report only if no argument is missing."""
        known = self._option_string_actions
        for word in words:
            if word == "--":
                break
            name = word.partition("=")[0]
            if re.match("-.", word) and not re.fullmatch(r"-[\d.]+", word) and known.keys().isdisjoint((name, word[:2])):
                near = nearest(name.lstrip("-"), [option[2:] for option in known if option.startswith("--")])
                raise UsageError(f"unknown option {name!r}", f"--{near}" if near else f"{self.prog} --help")

    def error(self, message: str) -> NoReturn:
        """Raise UsageError for a message of argparse."""
        message = re.sub(r"(-\w)/--\w+", r"\1", message)
        for pattern, replacement in REWORDED:
            message = re.sub(f"^{pattern}$", replacement, message, flags=re.DOTALL)
        if message.startswith("missing"):
            raise UsageError(re.sub("(.*), ", r"\1 and ", message), self.example())
        raise UsageError(message, f"{self.prog} --help")

    def refuse(self, error: Exception) -> NoReturn:
        """Raise UsageError for an error of the library, with the names of arguments replaced by those of options."""
        names = {action.dest: (action.option_strings or [str(action.metavar)])[0] for action in self._actions}
        names["name"] = "--preset"
        either = "|".join(names)
        text = str(error).replace("posenc.presets()", "those that posenc presets lists")
        text = re.sub(rf"\b({either})='(\w+)'", lambda match: f"{names[match[1]]} {match[2]}", text)
        text = re.sub(rf"(?<![\w-])({either})(?= (is|has|and|are)\b)", lambda match: names[match[1]], text)
        text = re.sub(r"\b[a-z]+_[a-z_]+\b", lambda match: names.get(match[0], match[0]), text)
        raise UsageError(text, "posenc presets" if "posenc presets" in text else f"{self.prog} --help") from error

    def example(self) -> str:
        """Return the first example in the help."""
        return str(self.epilog).split("\n")[1].strip()


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the most similar known word, or None if no known word is similar."""
    return next(iter(difflib.get_close_matches(word, known, 1)), None)
