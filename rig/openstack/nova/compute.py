"""nova-compute that finds its driver here: Nova loads drivers from its own package alone, and the installed one is shared
by all checkouts."""
import pathlib
import sys

import nova.virt

nova.virt.__path__.append(str(pathlib.Path(__file__).parent))

from nova.cmd.compute import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
