"""``VirtualMachineGuestInfo``: the response of the subresource ``guestinfo``."""

from __future__ import annotations

from pydantic import Field

from apiserver.apis.meta.schema import Int64, Kind, Model, Time


class GuestInfoAgent(Model):
    """The QEMU guest agent."""

    version: str | None = Field(None, description="Its version.")
    commands: list[str] | None = Field(None, description="Supported commands.")


class GuestInfoOS(Model):
    """The guest's operating system."""

    id: str | None = Field(None, description="One word for it, as ID in os-release: debian, mswindows.")
    name: str | None = Field(None, description="Its name.")
    pretty_name: str | None = Field(None, description="Its name and version, for people.")
    version: str | None = Field(None, description="Its version, for people.")
    version_id: str | None = Field(None, description="Its version.")
    kernel_release: str | None = Field(None, description="The release of its kernel.")
    kernel_version: str | None = Field(None, description="The version of its kernel.")
    machine: str | None = Field(None, description="The architecture that it was built for.")


class GuestInfoTimezone(Model):
    """The guest's time zone."""

    name: str | None = Field(None, description="Its name.")
    offset_seconds: Int64 | None = Field(None, description="Seconds east of UTC.")


class GuestInfoUser(Model):
    """A logged-in user."""

    user_name: str | None = Field(None, description="Their name in the guest.")
    domain: str | None = Field(None, description="Its domain, in Windows.")
    login_time: Time | None = Field(None, description="Since when.")


class GuestInfoDisk(Model):
    """A disk of a file system."""

    device: str | None = Field(None, description="The guest's name for it, such as /dev/vda1.")
    serial: str | None = Field(None, description="Its serial number.")
    bus: str | None = Field(None, description="The bus that it is on.")


class GuestInfoFilesystem(Model):
    """A mounted file system."""

    name: str | None = Field(None, description="The guest's name for it.")
    mount_point: str | None = Field(None, description="Directory at which it is mounted.")
    type: str | None = Field(None, description="Its type, such as ext4.")
    total_bytes: Int64 | None = Field(None, description="Bytes that it holds.")
    used_bytes: Int64 | None = Field(None, description="Bytes of them that are used.")
    disks: list[GuestInfoDisk] | None = Field(None, description="Disks that it lies on.")


class GuestInfoInterface(Model):
    """A network interface as the guest sees it."""

    name: str | None = Field(None, description="Its name in the spec, if the spec has its address.")
    mac: str | None = Field(None, description="The card's address, as reported by the guest.")
    device: str | None = Field(None, description="The guest's name for it, such as eth0.")
    ip_addresses: list[str] | None = Field(None, alias="ipAddresses", description="Its addresses, without link-local ones.")


class GuestInfoApplication(Model):
    """An installed package."""

    name: str | None = Field(None, description="Its name.")
    version: str | None = Field(None, description="Its version.")


class GuestInfoUnavailable(Model):
    """A field that the guest did not report."""

    field: str | None = Field(None, description="Name of the field.")
    reason: str | None = Field(None, description="The reason, for people.")


class VirtualMachineGuestInfo(Kind):
    """The QEMU guest agent's report at the time of the read. A guest can report anything."""

    time: Time | None = Field(None, description="Time at which the guest said it.")
    agent: GuestInfoAgent | None = Field(None, description="The agent that reported this.")
    os: GuestInfoOS | None = Field(None, description="The operating system.")
    hostname: str | None = Field(None, description="The host name.")
    timezone: GuestInfoTimezone | None = Field(None, description="The time zone.")
    users: list[GuestInfoUser] | None = Field(None, description="Users who are logged in; at most 64.")
    filesystems: list[GuestInfoFilesystem] | None = Field(None, description="File systems that are mounted; at most 64.")
    interfaces: list[GuestInfoInterface] | None = Field(None, description="Network interfaces but for loopback; at most 64.")
    applications: list[GuestInfoApplication] | None = Field(
        None,
        description="Packages that are installed; at most 2000. The agent runs dpkg-query or rpm in the guest for this, at most every "
        "ten minutes and after a reconnect, and only if the guest allows it.",
    )
    unavailable: list[GuestInfoUnavailable] | None = Field(None, description="Fields that the guest did not report, and why.")
    truncated: list[str] | None = Field(None, description="Lists that were truncated.")
