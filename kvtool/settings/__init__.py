"""One layered settings model: defaults, files, environment, flags; imported by the command line alone."""
