"""The documentation site: what mkdocs adds to the pages in ``docs/``.

``api``, ``words`` and ``verbs`` write the reference from the code, each time the site is built; ``hooks``
hands it to mkdocs, together with the files outside ``docs/`` that pages link to. ``sentences.yaml`` holds
what the code cannot say. Nothing here is part of the installed package.
"""
