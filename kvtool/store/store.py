"""A store opened: its layout, format, catalog and packs together."""

from dataclasses import dataclass

from kvtool.core.chunker import ChunkSizes
from kvtool.store import layout as store_layout
from kvtool.store.catalog import Catalog
from kvtool.store.format import StoreFormat
from kvtool.store.layout import Layout
from kvtool.store.packs import PackFiles


@dataclass(frozen=True, slots=True)
class Store:
    """One open store. `sync` says that acknowledged data must survive a power cut (durability "power")."""

    layout: Layout
    format: StoreFormat
    catalog: Catalog
    packs: PackFiles
    sync: bool = False

    @classmethod
    def open(cls, layout: Layout, *, writable: bool, sync: bool = False) -> "Store":
        """Opens what is there; a writer must hold the lock. Raises NoStore, StoreFormatError, OSError."""
        fmt = store_layout.open_existing(layout)
        catalog = Catalog(layout.catalog, writable=writable)
        return cls(layout, fmt, catalog, PackFiles(layout, catalog), sync)

    @property
    def sizes(self) -> ChunkSizes:
        """The store's chunk sizes."""
        return self.format.sizes

    def close(self) -> None:
        """Closes files and the catalog."""
        self.packs.close()
        self.catalog.close()
