"""Errors of devices."""


class DeviceError(RuntimeError):
    """A call of a device's runtime, or of an adaptor, has failed."""
