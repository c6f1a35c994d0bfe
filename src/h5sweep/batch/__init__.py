"""The batch systems of clusters: what a job is, how it is submitted, what is still queued.

    job          what is asked of a batch system, and what one has to be able to do
    slurm        Slurm: its scripts, sbatch and squeue
    submissions  which jobs were submitted for a run folder, and which of these are not over

Writes scripts and notes in `submit/` of a run folder, and calls the programs of batch systems. A
batch system more is a module more, and its name in `submissions`. Never runs a task, and never
decides what is missing.
"""
