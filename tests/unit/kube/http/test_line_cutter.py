from hypothesis import given, strategies as st

from jobtree.kube.http.line_cutter import LineCutter


@given(st.lists(st.binary(max_size=20).map(lambda raw: raw.replace(b"\n", b"")), max_size=8), st.data())
def test_lines_are_the_same_for_all_sizes_of_chunks(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines) + b"rest"
    cutter, cut, position = LineCutter(), [], 0
    while position < len(stream):
        size = data.draw(st.integers(1, 12))
        cut += cutter.feed(stream[position : position + size])
        position += size
    assert cut == [line for line in lines if line]
    assert cutter.rest() == b"rest"
