"""Services of launchers: torchrun, mpirun of Open MPI and MPICH, srun, flux run.

A launcher tells each process its rank by environment variables (`placement`), and has a store that
all ranks reach (`board`), by PMI-1 (`pmi`) or PMIx (`pmix`). docs/launchers.md says who reads it.
"""
