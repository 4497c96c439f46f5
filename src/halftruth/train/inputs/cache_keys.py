"""Names of cached files, which depend on everything that their content depends on."""

import hashlib
import json

from halftruth.data import ImageStore
from halftruth.data.errors import mask
from halftruth.data.remote import is_remote, list_remote, to_url


def make_cache_key(*facts: object) -> str:
    """Return a part of a file name that depends on all the facts."""
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def digest_image_files(store: ImageStore) -> list[list[str]]:
    """Return digests of the names, sizes and times of all image files, one per source."""
    digests = []
    for source in store.sources:
        if is_remote(source):
            listed = json.dumps(list_remote(source)).encode()
            digests.append([mask(to_url(source)), hashlib.sha256(listed).hexdigest()])
            continue
        files = sorted(path for path in source.rglob("*") if path.is_file()) or [source]
        digest = hashlib.sha256()
        for path in files:
            facts = path.stat()
            name = path.relative_to(source)
            digest.update(f"{name}\0{facts.st_size}\0{facts.st_mtime_ns}\0".encode())
        digests.append([str(source.resolve()), digest.hexdigest()])
    return digests
