"""``kubectl runs schema``: the JSON schema of a kind."""

import click

from jobtree.cli.shell.options import CommandOptions, verb

EXAMPLES = """
kubectl runs schema Run > run.schema.json    # for an editor: # yaml-language-server: $schema=run.schema.json
kubectl runs schema RunPlan                  # of the answers that plan -o json prints
"""
KINDS = ("Run", "Budget", "Reservation", "Lease", "RunPlan")


@verb("schema", examples=EXAMPLES)
@click.argument("kind", type=click.Choice(KINDS, case_sensitive=False))
def command(settings: CommandOptions, kind: str) -> None:
    """Print the JSON schema of a kind, which editors use to check and complete manifests.

    It has a sentence for each field. It has the rules for single fields; 'submit --dry-run' checks all rules.
    With -o yaml it is printed as YAML.
    """
    import json

    from jobtree.api.documents.document_stream import dump_yaml
    from jobtree.api.kinds.json_schema import json_schema

    schema = json_schema(kind)
    if settings.output == "yaml":
        click.echo(dump_yaml([schema]), nl=False)
    else:
        click.echo(json.dumps(schema, indent=2, ensure_ascii=False))
