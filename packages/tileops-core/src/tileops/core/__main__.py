"""``python -m tileops.core``: the ``tileops`` command where no script is installed."""

from tileops.core.cli import main

raise SystemExit(main())
