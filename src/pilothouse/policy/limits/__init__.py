"""How much a tenant may use: rates, concurrency and budgets at every level, reserved at admission and settled once."""
