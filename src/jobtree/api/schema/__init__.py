"""Scalar types, CEL rules, and the OpenAPI schema that is derived from the structs."""
