"""The base class of Encoding and Rotary, and the class of their fields."""

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar, Generic, Literal, Self, TypeAlias, TypeVar

from posenc._arguments import __version__, checks

Layout: TypeAlias = Literal["interleaved", "halves"]

Given = TypeVar("Given")
Kept = TypeVar("Kept")
MAX_NUMBERS = 8          # repr abbreviates longer lists of numbers


@dataclass(eq=False)
class Keyword(Generic[Given, Kept]):
    """A field of a specification: ``name: Keyword[type of argument, type of attribute] = Keyword(...)``.

    It is a descriptor, so that the types of the argument and of the attribute may differ.
    """

    default: Any                        # if it is None, None is valid
    # converts or refuses a value, or lists the valid values
    check: Callable[[str, Any], Any] | tuple[str, ...]

    excludes: tuple[str, ...] = ()      # must not be given with this one; replace() removes them
    # computes the attribute, by default the checked value
    attribute: Callable[[Any], Any] | None = None

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: Any = None) -> Kept:
        if instance is not None:
            return self.attribute(instance) if self.attribute else vars(instance)[self.name]
        if self.default is MISSING:
            raise AttributeError(self.name)         # so that dataclass makes the argument required
        return self.default

    def __set__(self, instance: Any, value: Given) -> None:
        if self.name in vars(instance):
            raise AttributeError(f"{self.name} is read-only; use replace")
        vars(instance)[self.name] = value

    def checked(self, value: Any) -> Any:
        if value is None and self.default is None:
            return None
        if isinstance(self.check, tuple):
            return checks.choice(self.name, value, self.check)
        return self.check(self.name, value)


Fields: TypeAlias = dict[str, Keyword[Any, Any]]


class Specification:
    """An immutable, hashable and picklable value that consists of a size and keywords.

    Subclasses are frozen dataclasses.
    """

    _group: ClassVar[str]                           # the key of the keywords in to_dict()
    _parameters: ClassVar[Fields]
    _size: ClassVar[str]                            # the first field, such as d_model
    _keywords: ClassVar[Fields]                     # the other fields
    # the keywords of the call that are not None, even those with the default value
    _given: frozenset[str]

    def __init_subclass__(cls) -> None:
        if fields := {name: field for name, field in vars(cls).items() if isinstance(field, Keyword)}:
            cls._parameters = fields
            cls._size, *names = fields
            cls._keywords = {name: fields[name] for name in names}

    def __new__(cls, *arguments: Any, **keywords: Any) -> Self:
        checks.check_keyword_names(keywords, cls._keywords if arguments else cls._parameters)
        instance = super().__new__(cls)
        vars(instance)["_given"] = frozenset(name for name, value in keywords.items() if value is not None)
        return instance

    @property
    def _values(self) -> dict[str, Any]:
        """All keywords with their checked values."""
        values = vars(self)
        return {name: values[name] for name in self._keywords}

    def _check_keywords(self) -> None:
        """Replace the given values by checked ones.

        Raise an error for two keywords that exclude each other.
        """
        values = vars(self)
        for name, field in self._parameters.items():
            values[name] = field.checked(values[name])
        changes = changes_of(self)
        for name in changes:
            for excluded in self._keywords[name].excludes:
                # keywords that exclude each other, such as spacing and shift, may have their default values
                is_mutual = name in self._keywords[excluded].excludes
                if excluded in changes or excluded in self._given and not is_mutual:
                    raise checks.both_given(name, excluded)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Specification) or other._keywords is not self._keywords:
            return NotImplemented
        return size_of(self) == size_of(other) and self._values == other._values

    def __hash__(self) -> int:
        values = (tuple(sorted(x.items())) if isinstance(x, dict) else x for x in self._values.values())
        return hash((size_of(self), *values))

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[int]]:
        return functools.partial(type(self), **changes_of(self)), (size_of(self),)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some keywords replaced.

        Parameters
        ----------
        **changes
            Parameters of the class, with new values.  A change also removes the keywords that it excludes;
            for example, ``frequencies`` removes ``base``.

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
        checks.check_keyword_names(changes, self._parameters)
        size = changes.pop(self._size, size_of(self))
        return type(self)(size, **changed(changes_of(self), changes, self._keywords))

    __replace__ = replace

    def to_dict(self) -> dict[str, Any]:
        """Return a dict that can be written as JSON.

        Returns
        -------
        dict
            A dict with the keys ``version`` (the version of posenc), ``d_model`` or ``head_dim``, and
            ``convention`` or ``rotary`` (a dict of all keywords).  A specification in a file also has
            ``positions`` and ``dtype``.

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
        return {"version": __version__, self._size: size_of(self), self._group: with_lists(self._values)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Return the instance that a dict describes.

        Parameters
        ----------
        document : mapping
            The result of `to_dict`, or the specification in a file that posenc wrote.  ``positions`` and
            ``dtype`` are ignored.  Missing keywords have their default values.

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
        size, group = cls._size, cls._group
        keywords = document.get(group) if isinstance(document, Mapping) else None
        if not isinstance(keywords, Mapping) or size not in document:
            raise checks.wrong_type("document", document, f"a dict with {size} and the dict {group}, as from to_dict()")
        for key in document.keys() - {"version", size, group, "positions", "dtype"}:
            raise ValueError(f"document has {key}, expected version, {size}, {group}, positions and dtype")
        checks.check_keyword_names(keywords, cls._keywords)
        values = {name: cls._keywords[name].checked(value) for name, value in keywords.items()}
        # to_dict() states the defaults, too, beside keywords that exclude them
        return cls(document[size], **changed(values, without_defaults(values, cls._keywords), cls._keywords))

    def __repr__(self) -> str:
        """Return a constructor call with the keywords that differ from the default.

        Long lists are abbreviated.
        """
        changes = "".join(f", {name}={abbreviated(value)}" for name, value in changes_of(self).items())
        return f"{type(self).__name__}({size_of(self)}{changes})"


def size_of(specification: Specification) -> int:
    return int(vars(specification)[specification._size])


def changes_of(specification: Specification) -> dict[str, Any]:
    """Return the keywords that differ from the default, with their checked values."""
    return without_defaults(specification._values, specification._keywords)


def without_defaults(values: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value != fields[name].default}


def changed(keywords: Mapping[str, Any], changes: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    """Return `keywords` updated with `changes`, without the keywords that the changes exclude."""
    excluded = {name for change in changes if changes[change] is not None for name in fields[change].excludes}
    return {name: value for name, value in keywords.items() if name not in excluded} | dict(changes)


def abbreviated(value: object) -> str:
    """Return ``repr(value)``, with long tuples and lists abbreviated."""
    if isinstance(value, (tuple, list)) and len(value) > MAX_NUMBERS:
        return f"<{len(value)} numbers from {value[0]} to {value[-1]}>"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {abbreviated(item)}' for key, item in value.items())}}}"
    return repr(value)


def with_lists(value: Any) -> Any:
    """Return a copy of a value with lists in place of tuples, as in JSON."""
    return json.loads(json.dumps(value))
