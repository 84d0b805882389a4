"""The four kinds: structs, defaults, the rules that need one object, and the CRDs made from them."""
