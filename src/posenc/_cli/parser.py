"""A parser for the command line, based on argparse.  Its error messages are plainer, and each has a hint."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable
from typing import Any, NoReturn

REQUIRED = "the following arguments are required"
# phrase that argparse writes after the name of an option: its replacement
PHRASES = {
    "expected one argument": "has no value",
    "not allowed with argument": "is given with",
    "ignored explicit argument": "takes no value, but has",
}


class UsageError(Exception):
    """An error in the arguments of the program; `args` contains a message of one line, and a command or option to try."""


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
        """Raise UsageError for a message of argparse, which begins with the name of an argument or with REQUIRED."""
        subject, _, problem = message.removeprefix("argument ").partition(": ")
        if subject == REQUIRED:
            *others, last = (name.partition("/")[0] for name in problem.split(", "))
            raise UsageError(f"missing {', '.join(others)}{' and ' if others else ''}{last}", self.example())
        for phrase, plainer in PHRASES.items():
            problem = problem.replace(phrase, plainer)
        raise UsageError(f"{subject.partition('/')[0]} {problem}", f"{self.prog} --help")

    def refuse(self, error: Exception) -> NoReturn:
        """Raise UsageError for an error of the library, with the names of options instead of arguments."""
        names = {action.dest: (action.option_strings or [str(action.metavar)])[0] for action in self._actions}
        names["name"] = "--preset"
        argument = getattr(error, "argument", "")
        options = " and ".join(names.get(name, name) for name in argument.split(" and "))
        text = options + str(error).removeprefix(argument).replace("posenc.presets()", "those that posenc presets lists")
        raise UsageError(text, "posenc presets" if "posenc presets" in text else f"{self.prog} --help") from error

    def example(self) -> str:
        """Return the first example in the help."""
        return str(self.epilog).split("\n")[1].strip()


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the most similar known word, or None if no known word is similar."""
    return next(iter(difflib.get_close_matches(word, known, 1)), None)
