"""`python -m amplint` is the command `amplint`."""

import os
import sys

if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False) and sys.path[0] in ("", os.getcwd()):
        # `-m` puts the working directory, where the code to be linted is, before everything that is installed
        del sys.path[0]
    from amplint.cli import main

    main(prog_name="amplint")
