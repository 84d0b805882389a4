"""Templates of the chart that are generated from manifests with marks."""

import pytest

from deploy.helm.generate import manifests, template


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        ("replicas: 2 # helm: {{ .Values.replicas }}\n", "replicas: {{ .Values.replicas }}\n"),
        ("  - --every=30 # helm: - --every={{ .Values.every }}\n", "  - --every={{ .Values.every }}\n"),
        ("  # helm: {{- end }}\n", "  {{- end }}\n"),
        ("# a remark\nkind: Service\n", "# a remark\nkind: Service\n"),
        (
            "limits: # helm: {{- toYaml .Values.limits | nindent 2 }}\n  cpu: 1\n  memory: 2Gi\nnext: 1\n",
            "limits: {{- toYaml .Values.limits | nindent 2 }}\nnext: 1\n",
        ),
    ],
)
def test_mark_replaces_its_line_or_block(manifest: str, expected: str) -> None:
    assert template(manifest) == expected


def test_templates_have_no_marks() -> None:
    for source in manifests():
        assert "# helm:" not in template(source.read_text()), source
