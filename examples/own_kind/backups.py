"""Serves a kind of your own with virt-api's machinery: ``python examples/own_kind/backups.py --port 6445``.

docs/own-kind.md explains it.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from apiserver.apis.meta.errors import Conflict
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.meta.schema import Int32, Kind, Model, Time, keyed_by
from apiserver.apis.meta.times import to_rfc3339
from apiserver.apis.meta.validation import FieldError, Path, invalid
from apiserver.registry.generic.strategy import Column, Spoke, Strategy, Verb
from apiserver.server import dev, running
from apiserver.server.options import Options

BACKUPS = Resource("store.example.com", "v1", "backups", "Backup")
OLD_BACKUPS = Resource("store.example.com", "v1beta1", "backups", "Backup")
SCHEDULE = re.compile(r"(\S+ ){4}\S+")


class Target(Model):
    """The destination of copies."""

    name: str = Field(description="A name for it, unique in the list.")
    url: str = Field(description="A bucket, such as s3://copies/daily.")


class BackupSpec(Model):
    """The source and schedule of copies."""

    database: str = Field(description="The database's name. Cannot be changed.")
    schedule: str | None = Field(None, description="Five fields, as in a CronJob. Default 0 3 * * *.")
    keep: Int32 | None = Field(None, description="How many copies are kept. Default 7.")
    targets: list[Target] | None = Field(None, description="Where copies go.", json_schema_extra=keyed_by("name"))


class BackupStatus(Model):
    """A Backup's status; the system writes it."""

    phase: Literal["Waiting", "Running", "Failed"] | None = Field(None, description="A summary.")
    last_run: Time | None = Field(None, description="When the last copy was asked for.")


class Backup(Kind):
    """Regular copies of a database."""

    spec: BackupSpec = Field(description="What is copied, and when; yours to write.")
    status: BackupStatus | None = Field(None, description="What became of it.")


class Run(Verb):
    """``POST …/backups/NAME/run``: makes a copy now."""

    def apply(self, obj: Object, body: Object, now: datetime) -> Object:
        """Set the backup's phase to Running and ``lastRun``, in place, and return it; a controller runs it. Raises Conflict if Running."""
        if obj.get("status", {}).get("phase") == "Running":
            raise Conflict(f'backup "{obj["metadata"]["name"]}" runs already: wait until its phase is Waiting')
        obj["status"] = {**obj.get("status", {}), "phase": "Running", "lastRun": to_rfc3339(now)}
        return obj


class BackupStrategy(Strategy):
    """The rules of backups; the machinery has everything else."""

    resource = BACKUPS
    singular = "backup"
    short_names = ("bk",)
    categories = ("all",)
    model = Backup
    verbs = {"run": Run()}  # noqa: RUF012 - the same for every instance

    def default(self, obj: Object) -> None:
        """Set the spec's defaults, in place."""
        for key, value in (("schedule", "0 3 * * *"), ("keep", 7)):
            obj.setdefault("spec", {}).setdefault(key, value)

    def validate(self, obj: Object) -> list[FieldError]:
        """Return all errors of the spec, so users see them at once."""
        spec, found = obj["spec"], []
        if spec["keep"] < 1:
            found.append(invalid(Path("spec.keep"), spec["keep"], "must be greater than or equal to 1"))
        if not SCHEDULE.fullmatch(spec["schedule"]):
            found.append(invalid(Path("spec.schedule"), spec["schedule"], "must have five fields, such as 0 3 * * *"))
        return found

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        """Return all errors of the new spec, also a changed database."""
        found = self.validate(obj)
        if obj["spec"]["database"] != old["spec"]["database"]:
            found.append(invalid(Path("spec.database"), obj["spec"]["database"], "field is immutable"))
        return found

    def selectable_fields(self, obj: Object) -> dict[str, str]:
        """Return an object's values for ``kubectl get backups --field-selector spec.database=shop``."""
        return {"spec.database": (obj.get("spec") or {}).get("database") or ""}

    def columns(self) -> tuple[Column, ...]:
        """Return the columns of ``kubectl get backups``."""
        return Column("Database"), Column("Schedule"), Column("Phase"), Column("Keep", type="integer", priority=1)

    def cells(self, obj: Object, now: datetime) -> list[Any]:
        """Return an object's cells for :meth:`columns`."""
        spec = obj["spec"]
        return [spec["database"], spec["schedule"], (obj.get("status") or {}).get("phase"), spec["keep"]]


class OldBackupStrategy(Spoke):
    """``v1beta1``, for existing manifests, with the same fields."""

    resource = OLD_BACKUPS
    model = Backup

    def upgrade(self, obj: Object) -> Object:
        """Return the object unchanged."""
        return obj

    def downgrade(self, obj: Object) -> Object:
        """Return the object unchanged."""
        return obj


async def serve(options: Options) -> None:
    """Serve backups until a signal arrives."""
    strategy = BackupStrategy()
    await running.run(options, lambda _: running.Kinds((strategy, OldBackupStrategy(strategy))))


if __name__ == "__main__":
    dev.main(serve, "backups")
