"""Serves new versions of models without a stop, as TensorFlow Serving does.

    models/mrpc/1/      served
    models/mrpc/2/      appears: it is loaded, then answers all new requests;
                        version 1 is unloaded when its requests are answered

A version is complete when it has the engine's file, nothing in it changed
between two looks, and it can be loaded and predicts. A version that fails is
one line in the log, and is tried again when its files change. If the version
that is served is removed, the highest that is left takes its place.
"""

import asyncio
import contextlib
import dataclasses
import gc
import os
from collections.abc import Mapping
from typing import Any

from absl import logging

from foundation import errors, file_system
from serving import servable, served_directories, served_model

LOADING, AVAILABLE = "LOADING", "AVAILABLE"
UNLOADING, END = "UNLOADING", "END"
# Path -> size and time of its last change, of all files of a version.
_Files = dict[str, tuple[int, int]]
_Status = dict[str, Any]  # In the form of TensorFlow Serving.


def status(version: int, state: str, message: str = "") -> _Status:
    """Returns the status of a version in the form of TensorFlow Serving.

    Args:
      version: the number of the version.
      state: LOADING, AVAILABLE, UNLOADING or END.
      message: why it could not be loaded; "" if it could.
    """
    code = "UNKNOWN" if message else "OK"
    return {
        "version": str(version),
        "state": state,
        "status": {"error_code": code, "error_message": message},
    }


@dataclasses.dataclass
class _Model:
    """What is known of a model's versions.

    Attributes:
      directory: where the numbered directories are.
      seen: version -> its files at the last look.
      failed: version -> its files when it could not be loaded.
      statuses: version -> status.
    """

    directory: str
    seen: dict[int, _Files] = dataclasses.field(default_factory=dict)
    failed: dict[int, _Files] = dataclasses.field(default_factory=dict)
    statuses: dict[int, _Status] = dataclasses.field(default_factory=dict)


class Watch:
    """Replaces models by their new versions."""

    def __init__(
        self,
        servables: dict[str, servable.Servable],
        directories: Mapping[str, str],
        engine: served_model.Engine,
        batching: servable.Batching = servable.DEFAULTS,
        seconds: float = 2.0,
    ):
        """Looks at nothing yet.

        Args:
          servables: name -> model; new versions are put into it.
          directories: name -> directory, of which those without numbered
            versions, and those that are not on this machine, are not watched.
          engine: what computes the models.
          batching: how rows are batched.
          seconds: the time between two looks.
        """
        self._servables, self._engine = servables, engine
        self._batching, self._seconds = batching, seconds
        self._models = {
            name: _Model(
                directory,
                statuses={
                    servables[name].version: status(
                        servables[name].version, AVAILABLE
                    )
                },
            )
            for name, directory in directories.items()
            if not file_system.is_remote(directory)
            and not file_system.is_file(os.path.join(directory, engine.file))
        }
        self._retiring: set[asyncio.Task] = set()

    def statuses(self, name: str) -> list[_Status]:
        """Returns the status of each version of a model, the newest first."""
        if name not in self._models:
            return [status(self._servables[name].version, AVAILABLE)]
        statuses = self._models[name].statuses
        return [statuses[version] for version in sorted(statuses, reverse=True)]

    async def run(self) -> None:
        """Looks for new versions until the task is cancelled."""
        while True:
            await asyncio.sleep(self._seconds)
            for name in self._models:
                await self._look(name)

    async def _look(self, name: str) -> None:
        """Loads the highest new version of a model that is complete."""
        model = self._models[name]
        loop = asyncio.get_running_loop()
        versions = await loop.run_in_executor(
            None, _files_of_versions, model.directory, self._engine.file
        )
        before, model.seen = model.seen, versions
        for version in sorted(versions, reverse=True):
            if version == self._servables[name].version:
                return
            files = versions[version]
            if files == before.get(version) != model.failed.get(version):
                return await self._replace(name, version)

    async def _replace(self, name: str, version: int) -> None:
        """Serves another version, if it can be loaded."""
        model, old = self._models[name], self._servables[name]
        loop = asyncio.get_running_loop()
        model.statuses[version] = status(version, LOADING)
        logging.info("%s: version %d is being loaded", name, version)
        try:
            new = await loop.run_in_executor(None, self._load, name, version)
        except Exception as error:
            # Files of others may raise anything.
            line = " ".join(f"{error or type(error).__name__}".split())
            model.statuses[version] = status(version, END, line)
            model.failed[version] = model.seen[version]
            logging.error(
                "%s: version %d is not served, version %d stays: %s",
                name,
                version,
                old.version,
                line,
            )
            return
        self._servables[name] = new
        model.statuses[version] = status(version, AVAILABLE)
        model.statuses[old.version] = status(old.version, UNLOADING)
        logging.info(
            "%s: version %d is served instead of version %d",
            name,
            version,
            old.version,
        )
        task = loop.create_task(self._retire(model, old))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def _load(self, name: str, version: int) -> servable.Servable:
        directory = os.path.join(self._models[name].directory, str(version))
        loaded = self._engine.load(directory)
        old = self._servables[name]
        if old.model.task and not loaded.task:
            raise errors.InputError(
                f"{directory}: has no export.json, as version {old.version} has"
            )
        made = servable.Servable(name, loaded, self._batching, version)
        try:
            made.warm_up()
        except BaseException:
            made.close()
            raise
        return made

    async def _retire(self, model: _Model, old: servable.Servable) -> None:
        """Unloads a version when its requests are answered."""
        await old.unused()
        old.close()
        name, version = old.name, old.version
        del old
        # A loaded graph has reference cycles.
        await asyncio.get_running_loop().run_in_executor(None, gc.collect)
        model.statuses[version] = status(version, END)
        logging.info("%s: version %d is unloaded", name, version)


def _files_of_versions(directory: str, marker: str) -> dict[int, _Files]:
    """Returns version -> files of the versions that have a file.

    Args:
      directory: where the numbered directories are.
      marker: the name of the file.
    """
    by_version = {}
    for version in served_directories.versions(directory):
        root, files = os.path.join(directory, str(version)), {}
        if not file_system.is_file(os.path.join(root, marker)):
            continue
        for folder, _, names in os.walk(root):
            for path in (os.path.join(folder, name) for name in names):
                # It may be being removed, or lead nowhere.
                with contextlib.suppress(OSError):
                    stat = os.stat(path)
                    files[path] = stat.st_size, stat.st_mtime_ns
        by_version[version] = files
    return by_version
