"""The stacks of a valid definition, each one environment on one data plane."""

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Self

from .definition import DataPlane, Environment, Header, Platform
from .definition.datasets import (
    ClaimDataset,
    CsiDataset,
    Dataset,
    DatasetRepository,
    EfsDataset,
    Folder,
    HostPathDataset,
    NfsDataset,
    ObjectStoreRepository,
    mounted_part,
)
from .definition.models import Model
from .definition.pools import OnDemand, Pool, Staging
from .definition.servers import Server
from .images_lock import ImagesLock
from .load import Document
from .problems import Problem


@dataclass(frozen=True)
class StackId:
    """The environment and data plane of a stack."""

    environment: Environment
    data_plane: DataPlane
    definition: str = field(default="", kw_only=True, compare=False)  # Its file, for commands to copy.

    @property
    def name(self) -> str:
        """Return `<environment>-<data plane>`."""
        return f"{self.environment.name}-{self.data_plane.name}"

    def former(self) -> Iterator[Self]:
        """Yield it under each possible former name, by the former names of its environment and its plane."""
        environments, planes = ([item.name, *item.formerly] for item in (self.environment, self.data_plane))
        for environment, plane in [*product(environments, planes)][1:]:
            one = self.environment.model_copy(update={"name": environment})
            yield replace(self, environment=one, data_plane=self.data_plane.model_copy(update={"name": plane}))

    @property
    def namespace(self) -> str:
        return self.environment.namespace_name


@dataclass(frozen=True)
class Stack(StackId):
    """An environment on a data plane, with all layers merged."""

    platform: Platform
    source: Document = field(repr=False, compare=False)  # The positions of the values of `platform`.
    versions_from: Environment | None = None  # The environment in `promotion.from`.

    def pools(self) -> Iterator[tuple[tuple[str | int, ...], Server, Pool]]:
        """Yield every pool, with its path in the definition and its server."""
        for index, server in enumerate(self.platform.servers):
            for place, pool in enumerate(server.pools):
                yield ("servers", index, "pools", place), server, pool

    def models_of(self, server: Server, pool: Pool) -> tuple[Model, ...]:
        """Return the models of which a pool serves all or some versions."""
        here = (model for model in self.platform.models if model.server == server.name)
        return tuple(model for model in here if pool.name in model.pools(server.pools[0].name))

    def path_of(self, model: Model) -> tuple[str | int, ...]:
        return ("models", self.platform.models.index(model))

    def buckets(self) -> Iterator[tuple[int, Server, ObjectStoreRepository]]:
        """Yield every server with a repository in object storage: its index, the server and the repository."""
        for index, server in enumerate(self.platform.servers):
            if isinstance(server.repository, ObjectStoreRepository):
                yield index, server, server.repository

    def staging(self, server: Server, pool: Pool) -> Staging | None:
        """Return the staging tier of a pool, or None if there is none or the files are on its nodes anyway."""
        near = [dataset.name for dataset in self.platform.datasets if isinstance(dataset, HostPathDataset)]
        is_near = isinstance(server.repository, DatasetRepository) and server.repository.dataset in near
        return pool.loading.staging if isinstance(pool.loading, OnDemand) and not is_near else None

    def mounted(self) -> Iterator[tuple[int, Server, CsiDataset]]:
        """Yield every server with a repository in a CSI volume: its index, the server and the dataset."""
        for index, server in enumerate(self.platform.servers):
            if isinstance(server.repository, DatasetRepository):
                for dataset in self.platform.datasets:
                    if dataset.name == server.repository.dataset and isinstance(dataset, CsiDataset):
                        yield index, server, dataset

    def dataset(self, name: str) -> Dataset:
        return next(dataset for dataset in self.platform.datasets if dataset.name == name)

    def volume(self, dataset: Dataset) -> tuple[str, ...]:
        """Return a key of the volume of a dataset, which is equal for all directories of the volume."""
        match dataset:
            case EfsDataset():
                return ("efs", dataset.file_system_id)
            case NfsDataset():
                return ("nfs", dataset.server)
            case CsiDataset():
                return ("csi", dataset.driver, dataset.volume_handle)
            case HostPathDataset():
                return ("hostPath", self.data_plane.name)
            case ClaimDataset():
                return ("claim", self.data_plane.name, f"{self.namespace}/{dataset.claim_name}")

    def folders(self, dataset: Dataset, below: str | None = None) -> Iterator[Folder]:
        """Yield the names of a dataset's directory, or of a directory below it."""
        root = dataset.path if isinstance(dataset, NfsDataset | HostPathDataset) else ""
        if isinstance(dataset, CsiDataset):
            root = mounted_part(dataset.mount_options)
        path = posixpath.normpath(f"/{root}/{dataset.domino.folder if dataset.domino else ''}/{below or ''}")
        if isinstance(dataset, CsiDataset) and dataset.store:  # The handle of such a volume is often any text.
            store, folder = dataset.store
            point = "".join(dataset.volume_handle.split(":")[2:3]) if store[0] == "efs" else ""
            yield Folder(dataset.name, store, posixpath.normpath(f"/{folder}/{path}"), point)
            return
        point = (dataset.access_point_id or "") if isinstance(dataset, EfsDataset) else ""
        yield Folder(dataset.name, self.volume(dataset), path, point)
        if isinstance(dataset, CsiDataset) and dataset.volume_attributes:
            # Two volumes can have equal attributes: some drivers have only a size or number of copies there.
            attributes = sorted(dataset.volume_attributes.items())
            yield Folder(dataset.name, (*self.volume(dataset), *(f"{key}={value}" for key, value in attributes)), path)

    def repository(self, server: Server) -> tuple[Folder, ...]:
        """Return the names of the directory or prefix of a server's models."""
        repository = server.repository
        if isinstance(repository, ObjectStoreRepository):
            scheme, _, rest = repository.url.partition("://")
            return (Folder(repository.url, (scheme, rest.partition("/")[0]), rest.partition("/")[2]),)
        found = [dataset for dataset in self.platform.datasets if dataset.name == repository.dataset]
        return tuple(folder for dataset in found for folder in self.folders(dataset, repository.path))


@dataclass(frozen=True)
class Definition:
    """A valid definition, with its stacks in the order of a rollout."""

    document: Document = field(repr=False, compare=False)
    header: Header
    stacks: tuple[Stack, ...]
    lock: ImagesLock
    advisories: tuple[Problem, ...] = ()

    @property
    def file(self) -> str:
        return self.document.file

    def known_as(self, file: str) -> Self:
        """Return this definition, read from a copy, with the original's file in commands to copy."""
        return replace(self, stacks=tuple(replace(stack, definition=file) for stack in self.stacks))
