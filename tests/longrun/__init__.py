"""A long run: mixed load for an hour, every byte compared, memory, descriptors and threads watched."""
