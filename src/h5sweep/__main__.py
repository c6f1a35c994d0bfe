"""`python -m h5sweep` is `h5sweep`."""

from .cli import main

if __name__ == "__main__":
    main()
