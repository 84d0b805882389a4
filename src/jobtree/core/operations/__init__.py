"""Changes that a pass tries and rolls back: layout, promises, payers, reclaim."""
