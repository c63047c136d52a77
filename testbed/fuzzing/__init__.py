"""Runs drawn from seeds, judged by oracles, and shrunk to a test where one is violated.

Scripts, with torch on rank threads; and programs, alone on their engine:

    faults        the kinds of faults, and what each makes of a run (open first)
    draw          a run of a script, or of programs, drawn from a seed
    trial         a draw, carried out: how it ended, and what it left
    values        what a rank has computed, as a digest
    scripts       runs of a script, held by oracles to the same run without faults
    programs      runs of programs, carried out, judged and made smaller
    shrinking     from a violation to the smallest, as a test
    campaign      batches of seeds on all cores, and a tally
"""
