"""Sphinx settings.  ``sphinx-build -W --keep-going -n -b html docs docs/_build/html`` builds the documentation, offline."""

import inspect

from sphinx.ext.autodoc.mock import _MockObject
from sphinx.util.inspect import stringify_signature

import posenc

project = "posenc"
author = "The posenc developers"
copyright = author
version = release = posenc.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]

# the build needs only signatures and docstrings, so the packages of the extras need not be installed
autodoc_mock_imports = ["dask", "torch", "zarr"]
_MockObject.__or__ = _MockObject.__ror__ = lambda self, other: self        # annotations such as torch.dtype | None
autodoc_typehints = "none"              # types are in the docstrings, with shapes and units
toc_object_entries_show_parents = "hide"
autosummary_filename_map = {"posenc.Preset": "posenc.Preset-class"}    # some file systems ignore case
nitpick_ignore_regex = [("py:obj", r"(dask|torch)\..*")]          # links to other projects would need a network
default_role = "autolink"               # `name` in a docstring is a link if posenc has the name
numpydoc_class_members_toctree = False  # the page of a class contains its methods
numpydoc_show_inherited_class_members = False

myst_heading_anchors = 3
copybutton_exclude = ".linenos, .gp, .go"        # neither prompts nor output

html_theme = "pydata_sphinx_theme"
# these pages have no pages below them in the table of contents
html_sidebars = {page: [] for page in ("numerics", "performance", "reliability", "changelog")}
html_title = f"posenc {version}"
html_copy_source = False
html_use_index = html_domain_indices = False     # docs/reference.rst lists all names
html_static_path = ["_static"]
html_css_files = ["posenc.css"]
html_theme_options = {
    "header_links_before_dropdown": 9,
    "navbar_align": "left",
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
}


def signature(app, what, name, value, options, text, result):
    """Return the signature of a class.  If the class inherits from a mocked class, Sphinx finds only ``(*args, **kwargs)``."""
    if what != "class" or text != "(*args, **kwargs)":
        return None
    _, *parameters = inspect.signature(value.__init__).parameters.values()
    return stringify_signature(inspect.Signature(parameters), show_annotation=False), result


def setup(app):
    app.connect("autodoc-process-signature", signature)
