"""Members of an ensemble in files, so that a run that was killed fits only the others again."""

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from halftruth import __version__
from halftruth.models.ensemble import build_member, get_layout
from halftruth.train.run_folder import (
    MEMBERS,
    CheckpointError,
    digest,
    load_checkpoint,
    save_checkpoint,
)

if TYPE_CHECKING:
    from halftruth.train.ensemble.member_fits import FittedMember


class KeptMembers:
    """The members that were fitted to the same data with the same settings."""

    def __init__(self, run: Path, identity: object, features: str, writes: bool = True) -> None:
        """`identity`, `features`: what members depend on; `writes`: whether to save new ones."""
        self.folder, self.writes = run / MEMBERS, writes
        self.key = digest(json.dumps([__version__, identity, features], default=str).encode())

    def load(self, file: str) -> "list[FittedMember] | None":
        """Return a member, once per setting; None if it has to be fitted."""
        from halftruth.train.ensemble.member_fits import FittedMember

        with contextlib.suppress(CheckpointError):
            saved = load_checkpoint(self._locate(file))
            if saved["key"] == self.key:
                return [
                    FittedMember(
                        build_member(
                            saved["name"], one["scores"].shape[1], one["layout"], one["state"]
                        ),
                        one["scores"], one["mean"], one["std"], one["seconds"],
                    )
                    for one in saved["settings"]
                ]  # fmt: skip
        return None

    def save(self, file: str, name: str, found: "list[FittedMember]") -> None:
        """Write a member to a file."""
        if not self.writes:
            return
        settings = [
            {**vars(one), "module": None, "state": one.module.state_dict()}
            | {"layout": get_layout({name: one.module})[name]}
            for one in found
        ]
        save_checkpoint(self._locate(file), {"key": self.key, "name": name, "settings": settings})

    def _locate(self, file: str) -> Path:
        return self.folder / f"{file}.safetensors"
