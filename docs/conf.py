"""Sphinx's settings for the site, which docs/build.py puts together and builds."""

project = "fnx"
html_title = "fnx"
extensions = ["myst_parser"]
html_theme = "furo"
html_show_sphinx = False
html_show_copyright = False
myst_heading_anchors = 4  # links to headings are checked, as everything is by -W
myst_enable_extensions = ["html_image"]
html_show_sourcelink = False
html_copy_source = False
pygments_dark_style = "monokai"
