"""Planning of clusters: questions, their points, and the answers.  Open `plan` first.

question    what is asked, as a file or options say it
points      the inputs of each row
evaluation  what a point comes to; `alteration`: with something otherwise
sweep       many points on all cores or a cluster; `cache`: what is known already
answers     what rows say: the best, causes, gains, crossings
"""

from testbed.planning.plan import Plan, plan
from testbed.planning.question import Question

__all__ = ["Plan", "Question", "plan"]
