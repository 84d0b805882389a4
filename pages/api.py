"""Writes the API reference: every field of the four kinds and of the policy, from the structs.

Names, types, bounds, defaults and rules are those that the API server enforces. The sentence about each field
comes from ``sentences.yaml`` of ``jobtree.api.kinds``. A struct is described once, below the first kind that
uses it.
"""

import sys
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta, structs

from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.crd import DEFINITIONS, Definition
from jobtree.api.kinds.field_sentences import sentence
from jobtree.api.kinds.policy import PolicySpec
from jobtree.api.kinds.run_plan import PLAN_API_VERSION, RunPlan
from jobtree.api.schema import scalars
from jobtree.api.schema.object_meta import API_VERSION
from jobtree.api.schema.packed_template import PackedTemplate
from pages.tables import table

Struct = type[msgspec.Struct]
POLICY = "The settings of administrators for all of Jobtree: ConfigMap `jobtree-policy`, key `policy.yaml`."
PLAN = (
    f"An answer of `kubectl runs plan` and of the Python library, `{PLAN_API_VERSION}`. "
    "It is not stored in the cluster."
)
SCALARS = {
    meta.description: name
    for name, alias in vars(scalars).items()
    if get_origin(alias) is Annotated
    for meta in get_args(alias)[1:]
    if isinstance(meta, Meta) and meta.description
}
NAMES = {str: "string", int: "integer", bool: "boolean"}


def page() -> str:
    """Returns the page in Markdown."""
    lines = [
        "# API",
        "",
        f"The four kinds of `{API_VERSION}`, plans, and the policy. Unknown fields are refused.",
        "A field without a default that is not marked *required* may be absent.",
    ]
    described: set[Struct] = set()
    for definition in DEFINITIONS:
        lines += ["", f"## {definition.kind.KIND}", "", _about(definition)]
        lines += _roots(definition.kind, described)
    lines += ["", "## RunPlan", "", PLAN, *_structs(RunPlan, "RunPlan", described)]
    lines += ["", "## Policy", "", POLICY, *_structs(PolicySpec, "policy.yaml", described)]
    lines += _scalars()
    return "\n".join(lines) + "\n"


def described_structs() -> Iterator[Struct]:
    """Yields every struct on the page, in order."""
    described: set[Struct] = set()
    for definition in DEFINITIONS:
        for root in _parts(definition.kind):
            yield from _below(root, described)
    yield from _below(RunPlan, described)
    yield from _below(PolicySpec, described)


def _about(definition: Definition) -> str:
    scope = "namespaced" if definition.namespaced else "cluster-scoped"
    names = " or ".join(f"`kubectl get {name}`" for name in (definition.plural, *definition.short_names))
    doc = (sys.modules[definition.kind.__module__].__doc__ or "").partition(": ")[2].strip()
    return f"{doc[:1].upper()}{doc[1:]} It is {scope}: {names}."


def _parts(kind: Any) -> list[Struct]:  # noqa: ANN401  one of four classes without a common base
    fields = {field.name: field.type for field in structs.fields(kind)}
    return [fields["spec"], fields["status"]]


def _roots(kind: type[Budget] | Any, described: set[Struct]) -> list[str]:  # noqa: ANN401
    lines = list(_rules("", getattr(kind, "RULES", ())))
    for root, part in zip(_parts(kind), ("spec", "status"), strict=True):
        lines += _structs(root, f"{kind.KIND}.{part}", described)
    return lines


def _structs(root: Struct, title: str, described: set[Struct]) -> list[str]:
    lines: list[str] = []
    for kind in _below(root, described):
        heading = f"`{title}`" if kind is root else f"`{kind.__name__}`"
        anchor = kind.__name__.lower()
        lines += ["", f"### {heading} {{ #{anchor} }}", ""]
        doc = kind.__dict__.get("__doc__")
        if doc:
            lines += [" ".join(doc.split()), ""]
        lines += table(
            ("field", "type", "default", "meaning"), (_row(kind, field) for field in structs.fields(kind))
        )
        lines += _rules("\n", getattr(kind, "RULES", ()))
    return lines


def _below(root: Struct, described: set[Struct]) -> Iterator[Struct]:
    if root in described:
        return
    described.add(root)
    yield root
    for field in structs.fields(root):
        bare = _bare(field.type)[0]
        if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
            yield from _below(bare, described)


def _rules(before: str, rules: Any) -> Iterator[str]:  # noqa: ANN401
    if rules:
        yield f"{before}Rules:"
        yield ""
        yield from (f"- {rule.message}" for rule in rules)


def _row(kind: Struct, field: structs.FieldInfo) -> tuple[str, str, str, str]:
    name = f"`{field.encode_name}`"
    return name, _type(field.type), _default(field), sentence(kind, field.encode_name)


def _default(field: structs.FieldInfo) -> str:
    if field.required:
        return "*required*"
    if isinstance(field.default, bool):
        return f"`{str(field.default).lower()}`"
    if isinstance(field.default, (int, str)) and field.default != "":
        return f"`{field.default}`"
    return ""


def _bare(annotation: Any) -> tuple[Any, str, list[Meta]]:  # noqa: ANN401  annotations have no common type
    """Returns the innermost type, a prefix such as "list of ", and the ``Meta`` annotations prefix it."""
    metas: list[Meta] = []
    prefix = ""
    while True:
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            annotation, metas = (
                arguments[0],
                [*metas, *(argument for argument in arguments[1:] if isinstance(argument, Meta))],
            )
        elif origin in (Union, UnionType):
            annotation = next(argument for argument in reversed(arguments) if argument is not NoneType)
        elif origin is tuple:
            annotation, prefix = arguments[0], "list of "
        elif origin is dict:
            annotation, prefix = arguments[1], "map to "
        else:
            return annotation, prefix, metas


def _type(annotation: Any) -> str:  # noqa: ANN401
    bare, prefix, metas = _bare(annotation)
    if get_origin(bare) is Literal:
        return prefix + " · ".join(f"`{value}`" for value in get_args(bare))
    if bare in (Any, PackedTemplate):
        return "object"
    if issubclass(bare, msgspec.Struct):
        return f"{prefix}[{bare.__name__}](#{bare.__name__.lower()})"
    description = next((meta.description for meta in metas if meta.description), None)
    if description in SCALARS:
        return f"{prefix}[{SCALARS[description]}](#{SCALARS[description].lower()})"
    low = next((meta.ge for meta in metas if meta.ge is not None), None)
    high = next((meta.le for meta in metas if meta.le is not None), None)
    bounds = f", {low} to {high:,}" if low is not None and high is not None else ""
    return f"{prefix}{NAMES[bare]}{bounds}"


def _scalars() -> list[str]:
    """Returns the section with the scalar types and their formats."""
    lines = ["", "## Scalars", "", "Strings with a certain format."]
    for description, name in SCALARS.items():
        lines += ["", f"### {name}", "", f"{description[:1].upper()}{description[1:]}".replace("*", r"\*")]
    return lines
