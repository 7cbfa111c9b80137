"""The HTTP API: a process that reads the store and asks the mount. Installed as the extra `http`."""
