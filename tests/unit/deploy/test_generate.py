"""How marks in a manifest become a template of the chart."""

import pytest

from deploy.helm.generate import manifests, template


@pytest.mark.parametrize(
    ("manifest", "made"),
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
def test_a_mark_says_what_the_chart_has(manifest: str, made: str) -> None:
    assert template(manifest) == made


def test_no_mark_is_left_over() -> None:
    for source in manifests():
        assert "# helm:" not in template(source.read_text()), source
