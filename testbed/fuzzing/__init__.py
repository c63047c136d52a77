"""Runs drawn from seeds, judged by oracles, and shrunk to a test where one is violated.

Scripts, with torch on rank threads; and programs, alone on their engine:

    faults        the kinds of faults, and what each makes of a run (open first)
    draw          a run of a script, drawn from a seed
    trial         a draw, carried out: how it ended, and what it left
    values        what a rank has computed, as a digest
    oracles       what must hold of a trial beside the same run without faults
    scripts       runs of a script, judged and made smaller
    program_draw  a run of programs, drawn from a seed
    program_trial the same, carried out; and what a collective demands
    programs      runs of programs, judged and made smaller
    campaign      batches of seeds on all cores, and a tally
"""
