"""Layouts of a transformer's training over ranks: what each takes, holds and loses, and which is best.

transformer   models, from files                      layout      axes, groups of ranks, experts' imbalance
machine       kernels, and collectives of groups      framework   what software adds, keeps and holds
step          layers, pipeline, gradients, optimizer  search      layouts that divide and fit
belief        how sure a step is, and measured ones   script      a script's layouts, and runs of few layers
composition   of a script's layouts, of such runs
"""
