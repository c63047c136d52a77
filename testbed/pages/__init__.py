"""Pages: results as one HTML file each, to be read, printed and sent on.  Open `page` first.

page      what a page consists of
recorded  what a command prints, as parts of a page
html      the file
delivery  a result on the terminal, as JSON, as a page
plots     interactive plots
"""

from testbed.pages.delivery import Delivery
from testbed.pages.html import check_page, write_page
from testbed.pages.page import Figures, Grid, Page, Part, Plot, Text
from testbed.pages.recorded import Recorder

__all__ = [
    "Delivery",
    "Figures",
    "Grid",
    "Page",
    "Part",
    "Plot",
    "Recorder",
    "Text",
    "check_page",
    "write_page",
]
