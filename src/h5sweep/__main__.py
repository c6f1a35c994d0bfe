"""Make `python -m h5sweep` the same as `h5sweep`."""

from .cli.entry import main

if __name__ == "__main__":
    main()
