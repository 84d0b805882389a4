"""The admission webhook: what the API server asks before it takes a Run or a Budget in."""
