"""Layouts of a transformer's training over ranks: what each takes, holds and loses, and which is best.

transformer   models, from files                      layout      axes, and the groups of ranks that they make
kernels       products, attention and what moves      messages    collectives of groups in their places
framework     what software adds, and keeps           memory      what ranks hold at most
layer         a layer's two passes                    step        stages, pipeline, gradients, optimizer
search        layouts that divide and fit             belief      how sure a step is
measured      steps that were measured                script      layouts that a script has options for
recording     runs of a script with few layers        composition of its layouts, of recordings
"""
