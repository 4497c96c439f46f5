"""`python -m halftruth` and `accelerate launch -m halftruth` are the `halftruth` command."""

from halftruth.cli import main

if __name__ == "__main__":
    main()
