"""Generates the parts of the documentation site that are not in ``docs/``.

``api``, ``words``, ``python`` and ``verbs`` write the reference from the code whenever the site is built.
``hooks`` passes it to mkdocs, together with files outside ``docs/`` that pages link to. The installed package
contains none of this.
"""
