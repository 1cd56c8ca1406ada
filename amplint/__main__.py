"""`python -m amplint` is the command `amplint`."""

from amplint.cli import main

if __name__ == "__main__":
    main(prog_name="amplint")
