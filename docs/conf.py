"""How Sphinx builds the site; `make docs` runs it, strictly and without a network."""

import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

from lab_docs import inventories  # noqa: E402, it was just made importable

project = "dask-cluster-lab"
author = "the dask-cluster-lab contributors"
copyright = author
extensions = [
    "lab_docs",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build", "README.md"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
# What cannot be linked: the type of a lock, type parameters, and the classes of
# prometheus_client, whose documentation has no page for any of them.
nitpick_ignore = [("py:class", name) for name in ("_thread.lock", "Key", "M")]
nitpick_ignore_regex = [("py:class", r"prometheus_client\..*")]

# What may be written in a page as code is a command; output comes from transcripts.
copybutton_selector = "div.highlight-sh pre, div.highlight-python pre"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": True}
python_use_unqualified_type_names = True
add_module_names = False

intersphinx_mapping = inventories.write(
    HERE / "inventories", Path(tempfile.mkdtemp(prefix="lab-docs-"))
)

html_theme = "pydata_sphinx_theme"
html_title = "dask-cluster-lab"
html_static_path = ["_static"]
html_css_files = ["lab.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "header_links_before_dropdown": 6,
    "show_toc_level": 1,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "setup": []}
if "GITHUB_REPOSITORY" in os.environ:  # where the site is published from
    html_theme_options["github_url"] = (
        f"{os.environ['GITHUB_SERVER_URL']}/{os.environ['GITHUB_REPOSITORY']}"
    )
