"""`python -m carico_agent` is `carico`."""

import sys

from carico_agent.cli import main

sys.exit(main())
