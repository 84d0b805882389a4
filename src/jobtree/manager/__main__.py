"""``python -m jobtree.manager``: Jobtree's controller manager."""

import asyncio
import sys

import click

from jobtree.api.schema.problems import InputError

try:
    from jobtree.manager.log import Log
    from jobtree.manager.process.manager_process import ManagerProcess
    from jobtree.manager.settings import ManagerSettings, read_settings
except ModuleNotFoundError as missing:
    sys.exit(
        f"error: {missing.name} is not installed: the manager needs the extra, pip install 'jobtree[manager]'"
    )


def main() -> int:
    try:
        settings = read_settings(sys.argv[1:])
        return asyncio.run(start(settings))
    except click.ClickException as wrong:
        wrong.show()
        return wrong.exit_code
    except InputError as wrong:
        click.echo(f"error: {wrong}", err=True)
        return 2


async def start(settings: ManagerSettings) -> int:
    return await ManagerProcess(settings, Log()).run()


if __name__ == "__main__":
    sys.exit(main())
