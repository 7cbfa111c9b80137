"""The whole of the settings, as one frozen model."""

from typing import Any, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from kvtool.settings.relations import RELATIONS
from kvtool.settings.sections import (
    ChunkSection,
    HttpSection,
    LogSection,
    MountSection,
    ScoreSection,
    StoreSection,
)


class Settings(BaseSettings):
    """Every setting of kvtool, valid: sizes in bytes, durations in seconds, paths absolute.

    Built from keyword arguments only; `layers.resolve` reads files, environment and flags, since
    it alone knows where each value came from. Raises pydantic.ValidationError.
    """

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    store: StoreSection = Field(default_factory=StoreSection)
    chunk: ChunkSection = Field(default_factory=ChunkSection)
    mount: MountSection = Field(default_factory=MountSection)
    http: HttpSection = Field(default_factory=HttpSection)
    score: ScoreSection = Field(default_factory=ScoreSection)
    log: LogSection = Field(default_factory=LogSection)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  (the names are pydantic-settings')
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)

    @model_validator(mode="after")
    def _relations(self) -> Self:
        values = self.flat()
        broken = [relation for relation in RELATIONS if relation.broken(values)]
        if broken:
            raise ValueError("; ".join(f"{each.first} {each.otherwise} {each.second}" for each in broken))
        return self

    def flat(self) -> dict[str, Any]:
        """Key to value, in the order of the fields."""
        return {
            f"{section}.{name}": value
            for section, fields in ((name, getattr(self, name)) for name in type(self).model_fields)
            for name, value in fields
        }
