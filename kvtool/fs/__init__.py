"""The file system: what a mount does, on trio; pyfuse3 only in operations and mount."""
