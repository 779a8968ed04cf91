"""What an architecture is, from its config alone: equations, shapes, parameters, budgets, cache designs, the ladder."""
