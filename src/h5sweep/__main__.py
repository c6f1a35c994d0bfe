"""`python -m h5sweep` is `h5sweep`."""

from .cli.entry import main

if __name__ == "__main__":
    main()
