"""`python -P -m pilothouse.testing.fake_engine`."""

import sys

from pilothouse.testing.fake_engine.command import main

sys.exit(main())
