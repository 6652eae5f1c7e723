"""What goes wrong with a device."""


class DeviceError(RuntimeError):
    """A call of a device's runtime, or of an adaptor, has failed."""
