"""The laboratory: what our own models and data are held against, and the documents that say what came of it.

``claims`` puts figures of introductory texts to the test (``make claims``: docs/claims.md); ``truth`` holds
the networks that ship and published trainings against measurements, ``shaped`` networks that are built out
of namespaces here (both: ``make truth``, docs/truth.md).  A checkout has it, the installed package does not.
"""
