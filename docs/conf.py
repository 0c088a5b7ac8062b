"""How Sphinx builds the documentation: `sphinx-build -n -W --keep-going docs build/docs`.

Nothing is fetched from the network, neither by the build nor by a reader's browser: formulas are
MathML, and names of other projects are not links.
"""

import sys
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert

import platt_jax
import platt_jax.metrics
import platt_jax.plots
import platt_jax.sklearn

sys.path.insert(0, str(Path(__file__).parent))
import draw_layers

project = "platt_jax"
author = copyright = "The platt_jax authors"
version = release = platt_jax.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_update_mathjax = False
myst_dmath_double_inline = True

# The notebooks are stored with their outputs, and a test runs them (tests/test_notebooks.py).
nb_execution_mode = "off"
nb_ipywidgets_js = {}

# The docstrings name the types of arguments in words.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {
    "members": True,
    # What scikit-learn adds to its estimators, and what a class docstring describes already.
    "exclude-members": "set_fit_request, set_score_request, set_predict_request, "
    "set_predict_proba_request, get_metadata_routing, calibrators_",
}
napoleon_numpy_docstring = False
napoleon_attr_annotations = False
# Backticks in docstrings are links where the name is documented, and code elsewhere.
default_role = "py:obj"
add_module_names = False

html_theme = "pydata_sphinx_theme"
html_title = "platt_jax"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}


def _document_where_public(module):
    """Names a module's objects as its users import them, not by the files that define them."""
    for name in module.__all__:
        if hasattr(one := getattr(module, name), "__module__"):
            one.__module__ = module.__name__


for _module in (
    platt_jax.inference,
    platt_jax.environment,
    platt_jax,
    platt_jax.metrics,
    platt_jax.plots,
    platt_jax.curves,
    platt_jax.sklearn,
):
    _document_where_public(_module)


def _default_options(app, what, name, obj, options, signature, return_annotation):
    """Shortens the printed default `Options(...)`, every field of which is the default."""
    if signature and (whole := repr(platt_jax.Options())) in signature:
        return signature.replace(whole, "Options()"), return_annotation
    return None


def _fields_described_once(app, what, name, obj, skip, options):
    """Skips the fields of named tuples, which their classes' docstrings describe."""
    return True if type(obj).__name__ == "_tuplegetter" else None


def _code_for_unknown_names(app, env, node, contnode):
    """What a docstring has in backticks and no page documents is code: an argument, a command."""
    return contnode if node.get("reftype") == "obj" else None


def _mathml(latex, display):
    return convert(latex, display=display)


def _inline_math(translator, node):
    translator.body.append(_mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def _displayed_math(translator, node):
    translator.body.append(f'<div class="formula">{_mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def _draw_diagrams(app, doctree):
    """Draws diagrams in the language of Mermaid, whose program would come from the network."""
    for block in list(doctree.findall(nodes.literal_block)):
        if block.get("language") == "mermaid":
            block.replace_self(nodes.raw("", draw_layers.svg(block.astext()), format="html"))


def setup(app):
    """Connects what this file defines."""
    app.connect("autodoc-process-signature", _default_options)
    app.connect("autodoc-skip-member", _fields_described_once)
    app.connect("missing-reference", _code_for_unknown_names)
    app.connect("doctree-read", _draw_diagrams)
    app.add_html_math_renderer("mathml", (_inline_math, None), (_displayed_math, None))


html_math_renderer = "mathml"
