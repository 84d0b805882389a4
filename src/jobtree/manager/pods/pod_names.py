"""Names of what Jobtree makes for a Run: the same for the same decision, so making it twice makes it once.

A pod is named after its Run, its seat and its attempt. Its hostname leaves out the attempt: others find a
rank under the same name wherever it runs. The first part of the Run's UID keeps apart what a Run left
behind and what one made anew under its name begins. Labels are for people and selectors; what Jobtree
believes is the owner reference.
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
    """``trainer-0-3``: where others find a rank (its group, its placement there), whatever its attempt."""
    return f"{as_label(run, MAX_LABEL - 1 - len(part))}-{part}"


def service_name(run: str, uid: str) -> str:
    return f"{as_label(run, MAX_LABEL - UID_PART - 1)}-{uid[:UID_PART]}"


def as_label(name: str, at_most: int) -> str:
    """The name as one DNS label; a long one is cut and told apart by a hash of the whole."""
    label = name.replace(".", "-")
    if not label[0].isalpha():  # the name of a Service begins with a letter
        label = f"r-{label}"
    if label == name and len(label) <= at_most:
        return label
    digest = sha256(name.encode()).hexdigest()[:HASH_PART]
    return f"{label[: at_most - HASH_PART - 1].rstrip('-')}-{digest}"


def label_value(text: str) -> str:
    """A name as the value of a label, which is shorter than a name may be."""
    return text if len(text) <= MAX_LABEL else as_label(text, MAX_LABEL)
