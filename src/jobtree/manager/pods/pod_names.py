"""Names the objects that Jobtree creates for a Run.

The same decision gives the same name, so an object is not created twice. A pod is named after its Run, its
group rank and its attempt. Its hostname leaves out the attempt: a rank has the same hostname wherever it
runs. The first part of the UID keeps the objects of a deleted Run apart from those of a new Run of the same
name. Labels are for people and selectors; Jobtree itself trusts only the owner reference.
"""

from hashlib import sha256

from jobtree.api.schema.object_meta import GROUP

GPU_CONTAINER_ANNOTATION = f"{GROUP}/gpu-container"

MAX_LABEL = 63
UID_PART = 8
HASH_PART = 6


def pod_name(run: str, uid: str, part: str) -> str:
    """``trainer-1f0c22aa-0-3-1``: ``part`` says which of the Run's pods it is."""
    return f"{as_label(run, MAX_LABEL - UID_PART - 2 - len(part))}-{uid[:UID_PART]}-{part}"


def hostname(run: str, part: str) -> str:
    """``trainer-0-3``: the hostname of a rank (its group, and its number in the group) in all attempts."""
    return f"{as_label(run, MAX_LABEL - 1 - len(part))}-{part}"


def service_name(run: str, uid: str) -> str:
    return f"{as_label(run, MAX_LABEL - UID_PART - 1)}-{uid[:UID_PART]}"


def as_label(name: str, at_most: int) -> str:
    """Returns the name as one DNS label; a long name is cut and gets a hash of the whole."""
    label = name.replace(".", "-")
    if not label[0].isalpha():  # the name of a Service must begin with a letter
        label = f"r-{label}"
    if label == name and len(label) <= at_most:
        return label
    digest = sha256(name.encode()).hexdigest()[:HASH_PART]
    return f"{label[: at_most - HASH_PART - 1].rstrip('-')}-{digest}"


def label_value(text: str) -> str:
    """Returns a name as the value of a label, which must be shorter than a name."""
    return text if len(text) <= MAX_LABEL else as_label(text, MAX_LABEL)
