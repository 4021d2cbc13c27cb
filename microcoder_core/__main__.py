"""`python -m microcoder_core`, for launchers that start modules: `torchrun --nproc-per-node 4 -m microcoder_core train ...`."""

from microcoder_core.cli.main import main

if __name__ == "__main__":
    main()
