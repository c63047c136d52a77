"""Layouts of a transformer's training over ranks: what each takes, holds and loses, and which is best.

transformer   models, from files                      layout         axes, groups of ranks, experts' imbalance
machine       kernels, and collectives of groups      framework      what software adds, keeps and holds
step          layers, pipeline, gradients, optimizer  search         layouts that divide and fit
belief        how sure a step is, and measured ones   script_layout  those that a script has options for
script        runs of few layers of such layouts      composition    of such layouts, of such runs
schedule      of pipelines, in torch's order          passes         of a pipeline's stages, as they are run
pipeline      1F1B on any ranks, of passes on two     extrapolation  of what grows by the same each time
"""
