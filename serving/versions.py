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
import gc
import os
import pathlib
from collections.abc import Mapping

from absl import logging

from foundation import errors, file_system
from serving import served_directories, served_model
from serving.servable import Servable, status

# Path -> size and time of its last change, of all files of a version.
_Files = dict[str, tuple[int, int]]
_POLL_SECONDS = 0.05  # Between two looks whether a version is still used.


class Watch:
    """Replaces models by their new versions."""

    def __init__(
        self,
        servables: dict[str, Servable],
        directories: Mapping[str, str],
        engine: served_model.Engine,
        seconds: float = 2.0,
    ):
        """Looks at nothing yet.

        Args:
          servables: name -> model; new versions are put into it.
          directories: name -> directory, of which those without numbered
            versions, and those that are not on this machine, are not watched.
          engine: what computes the models.
          seconds: the time between two looks.
        """
        self._servables, self._engine = servables, engine
        self._seconds = seconds
        self._directories = {
            name: directory
            for name, directory in directories.items()
            if not file_system.is_remote(directory)
            and not file_system.is_file(os.path.join(directory, engine.file))
        }
        # The files of each version at the last look, and when it failed.
        self._seen: dict[str, dict[int, _Files]] = {}
        self._failed: dict[tuple[str, int], _Files] = {}
        self._retiring: set[asyncio.Task] = set()

    async def run(self) -> None:
        """Looks for new versions until the task is cancelled."""
        while True:
            await asyncio.sleep(self._seconds)
            for name in self._directories:
                await self._look(name)

    async def _look(self, name: str) -> None:
        """Loads the highest new version of a model that is complete."""
        versions = await asyncio.to_thread(
            _files_of_versions, self._directories[name], self._engine.file
        )
        before, self._seen[name] = self._seen.get(name, {}), versions
        for version in sorted(versions, reverse=True):
            if version == self._servables[name].version:
                return
            failed = self._failed.get((name, version))
            if versions[version] == before.get(version) != failed:
                return await self._replace(name, version)

    async def _replace(self, name: str, version: int) -> None:
        """Serves another version, if it can be loaded."""
        old = self._servables[name]
        old.statuses[version] = status(version, "LOADING")
        logging.info("%s: version %d is being loaded", name, version)
        try:
            new = await asyncio.to_thread(self._load, name, version)
        except Exception as error:
            # Files of others may raise anything.
            line = " ".join(f"{error or type(error).__name__}".split())
            old.statuses[version] = status(version, "END", line)
            self._failed[name, version] = self._seen[name][version]
            logging.error(
                "%s: version %d is not served, version %d stays: %s",
                name,
                version,
                old.version,
                line,
            )
            return
        self._servables[name], new.statuses = new, old.statuses
        new.statuses[version] = status(version, "AVAILABLE")
        new.statuses[old.version] = status(old.version, "UNLOADING")
        logging.info(
            "%s: version %d is served instead of version %d",
            name,
            version,
            old.version,
        )
        task = asyncio.create_task(self._retire(old))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def _load(self, name: str, version: int) -> Servable:
        directory = os.path.join(self._directories[name], str(version))
        loaded, old = self._engine.load(directory), self._servables[name]
        if old.task and not loaded.task:
            raise errors.InputError(
                f"{directory}: has no export.json, as version {old.version} has"
            )
        new = Servable(name, loaded, old.batching, version)
        new.warm_up()
        return new

    async def _retire(self, old: Servable) -> None:
        """Unloads a version when its requests are answered."""
        while old.num_users:
            await asyncio.sleep(_POLL_SECONDS)
        name, version, statuses = old.name, old.version, old.statuses
        del old  # Its threads end with it.
        # A loaded graph has reference cycles.
        await asyncio.to_thread(gc.collect)
        statuses[version] = status(version, "END")
        logging.info("%s: version %d is unloaded", name, version)


def _files_of_versions(directory: str, marker: str) -> dict[int, _Files]:
    """Returns version -> files of the versions that have a file.

    Args:
      directory: where the numbered directories are.
      marker: the name of the file.
    """
    by_version = {}
    for version in served_directories.versions(directory):
        root = pathlib.Path(directory, str(version))
        # A file may be being removed.
        with contextlib.suppress(OSError):
            found = {str(path): path.lstat() for path in root.rglob("*")}
            if str(root / marker) in found:
                by_version[version] = {
                    path: (x.st_size, x.st_mtime_ns)
                    for path, x in found.items()
                }
    return by_version
