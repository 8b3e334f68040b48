"""Specification, the base class of Encoding and Rotary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, NoReturn, Self

from posenc._arguments import checks
from posenc._arguments.version import __version__

MOST_SHOWN = 8          # repr abbreviates longer lists of numbers


class Keyword(NamedTuple):
    """A keyword of a specification."""

    default: Any                        # if the default is None, None is a valid value
    check: Callable[[str, Any], Any] | tuple[str, ...]      # a function that converts or refuses a value, or the valid values
    help: str = ""                      # of the command-line option
    excludes: tuple[str, ...] = ()      # keywords that must not be given with this keyword; replace() removes them

    def checked(self, name: str, value: Any) -> Any:
        if value is None and self.default is None:
            return None
        return checks.choice(name, value, self.check) if isinstance(self.check, tuple) else self.check(name, value)


class Form(NamedTuple):
    """The parameters of a specification."""

    size: str                           # the first parameter, such as d_model
    group: str                          # the key of the keywords in to_dict()
    keywords: Mapping[str, Keyword]
    ignored: tuple[str, ...] = ()       # other keys that from_dict accepts and ignores


class Specification:
    """An immutable, hashable and picklable value that consists of a size and keywords.  Subclasses check both."""

    __slots__ = ("__weakref__", "_hash", "_keywords")

    _form: ClassVar[Form]
    _hash: int
    _keywords: dict[str, Any]

    def __init__(self, size: int, **keywords: Any) -> None:
        raise NotImplementedError

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: {name} cannot be set; use replace({name}=...)")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: {name} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Specification) or other._form is not self._form:
            return NotImplemented
        return size_of(self) == size_of(other) and self._keywords == other._keywords

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[type[Self], int, dict[str, Any]]]:
        return rebuild, (type(self), size_of(self), changes_of(self))

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some keywords replaced.

        Parameters
        ----------
        **changes
            Parameters of the class, with new values.  A change also removes the keywords that it excludes; for example,
            ``frequencies`` removes ``base``.

        Returns
        -------
        Encoding or Rotary
            A new instance.  All other keywords keep their values.

        Raises
        ------
        TypeError, ValueError
            If a change has a wrong type or value, or if two keywords exclude each other.

        See Also
        --------
        to_dict : Return all keywords.

        Examples
        --------
        >>> import posenc
        >>> posenc.preset("whisper", 384).replace(d_model=512, scale=0.5)
        Encoding(512, scale=0.5, odd='error', spacing='endpoint', layout='halves')
        >>> posenc.Rotary(64, base=500.0).replace(layout="interleaved")
        Rotary(64, base=500.0, layout='interleaved')
        """
        checks.keywords(changes, (self._form.size, *self._form.keywords))
        size = changes.pop(self._form.size, size_of(self))
        return type(self)(size, **changed(changes_of(self), changes, self._form.keywords))

    __replace__ = replace

    def to_dict(self) -> dict[str, Any]:
        """Return a dict that can be written as JSON.

        Returns
        -------
        dict
            A dict with the keys ``version`` (the version of posenc), ``d_model`` or ``head_dim``, and ``convention`` or
            ``rotary`` (a dict of all keywords).  A specification in a file also has ``positions`` and ``dtype``.

        See Also
        --------
        from_dict : The inverse.

        Examples
        --------
        >>> import json
        >>> from posenc import Encoding
        >>> document = json.dumps(Encoding(64, base=500.0).to_dict())
        >>> Encoding.from_dict(json.loads(document))
        Encoding(64, base=500.0)
        """
        keywords = {name: with_lists(value) for name, value in self._keywords.items()}
        return {"version": __version__, self._form.size: size_of(self), self._form.group: keywords}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Return the instance that a dict describes.

        Parameters
        ----------
        document : mapping
            The result of `to_dict`, or the specification in a file that posenc wrote.  ``positions`` and ``dtype`` are
            ignored.  Missing keywords have their default values.

        Returns
        -------
        Encoding or Rotary
            An instance equal to the one on which `to_dict` was called.

        Raises
        ------
        TypeError, ValueError
            If the dict has an unknown key or lacks a required key, or if a keyword has a wrong type or value.

        See Also
        --------
        to_dict : The inverse.

        Examples
        --------
        >>> from posenc import Encoding, Rotary
        >>> Encoding.from_dict({"d_model": 64, "convention": {"layout": "halves"}})
        Encoding(64, layout='halves')
        >>> Rotary.from_dict({"head_dim": 64, "rotary": {"layout": "interleaved"}})
        Rotary(64, layout='interleaved')
        """
        _check_document(document, cls.__name__, cls._form)
        return cls(document[cls._form.size], **document[cls._form.group])

    def __repr__(self) -> str:
        """Return a constructor call with the keywords that differ from the default; long lists are abbreviated."""
        changes = "".join(f", {name}={abbreviated(value)}" for name, value in changes_of(self).items())
        return f"{type(self).__name__}({size_of(self)}{changes})"

    def _repr_html_(self) -> str:
        """Return all keywords as an HTML table; values that differ from the default are bold."""
        from html import escape

        rows = []
        changes = {self._form.size} | changes_of(self).keys()
        for name, value in {self._form.size: size_of(self), **self._keywords}.items():
            text = escape(abbreviated(value))
            rows.append(f'<tr><th scope="row">{name}</th><td>{f"<b>{text}</b>" if name in changes else text}</td></tr>')
        return f"<table><caption><code>{escape(repr(self))}</code></caption><tbody>{''.join(rows)}</tbody></table>"


def set_attributes(specification: Specification, size: int, keywords: dict[str, Any], **attributes: Any) -> None:
    """Set the attributes of a new instance: the size, the keywords, and `attributes`."""
    form = specification._form
    if hasattr(specification, "_hash"):
        raise AttributeError(f"{type(specification).__name__} is immutable: __init__ cannot be called again")
    own = {"_keywords": keywords, "_hash": hash((size, *map(_hashable, keywords.values()))), form.size: size}
    for name, value in {**own, **keywords, **attributes}.items():
        if not isinstance(getattr(type(specification), name), property):
            object.__setattr__(specification, name, value)


def size_of(specification: Specification) -> int:
    size: int = getattr(specification, specification._form.size)
    return size


def keywords_of(specification: Specification) -> dict[str, Any]:
    """Return all keywords with their values."""
    return dict(specification._keywords)


def changes_of(specification: Specification) -> dict[str, Any]:
    """Return the keywords that differ from the default, with their values."""
    table = specification._form.keywords
    return {name: value for name, value in specification._keywords.items() if value != table[name].default}


def checked_keywords(table: Mapping[str, Keyword], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Check and convert the arguments for all keywords in `table`; raise an error for two that exclude each other."""
    values = {name: keyword.checked(name, arguments[name]) for name, keyword in table.items()}
    given = {name for name, value in values.items() if value != table[name].default}
    for name, keyword in table.items():
        for other in keyword.excludes:
            if {name, other} <= given:
                raise checks.both_given(name, other)
    return values


def changed(keywords: Mapping[str, Any], changes: Mapping[str, Any], table: Mapping[str, Keyword]) -> dict[str, Any]:
    """Return `keywords` updated with `changes`, without the keywords that the changes exclude."""
    replaced = {name for change in changes if change in table for name in table[change].excludes}
    return {name: value for name, value in keywords.items() if name not in replaced} | dict(changes)


def rebuild(kind: Any, size: int, keywords: Mapping[str, Any]) -> Any:
    """Call a constructor; pickled objects refer to this function by name."""
    return kind(size, **keywords)


def abbreviated(value: object) -> str:
    """Return ``repr(value)``, with long tuples and lists abbreviated."""
    if isinstance(value, (tuple, list)) and len(value) > MOST_SHOWN:
        return f"<{len(value)} numbers from {value[0]} to {value[-1]}>"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {abbreviated(item)}' for key, item in value.items())}}}"
    return repr(value)


def with_lists(value: Any) -> Any:
    """Return a copy of a value with lists in place of tuples, as in JSON."""
    if isinstance(value, dict):
        return {key: with_lists(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _hashable(value: Any) -> Any:
    return tuple(sorted(value.items())) if isinstance(value, dict) else value


def _listed(names: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, names)))


def _check_document(document: Any, kind: str, form: Form) -> None:
    """Check the keys of a dict from to_dict."""
    if not isinstance(document, Mapping):
        raise checks.wrong_type("document", document, f"a dict from {kind}.to_dict")
    missing = {form.size, form.group} - document.keys()
    unknown = document.keys() - {"version", form.size, form.group, *form.ignored}
    if missing or unknown:
        difference = f"lacks {_listed(missing)}" if missing else f"has {_listed(unknown)}"
        raise ValueError(f"document {difference}, expected version, {form.size} and {form.group}")
    if not isinstance(document[form.group], Mapping):
        raise checks.wrong_type(form.group, document[form.group], f"a dict of keywords of {kind}")
    if unknown := document[form.group].keys() - form.keywords.keys():
        raise ValueError(f"{form.group} has {_listed(unknown)}, expected keywords of {kind}")
