"""Pure rules: bytes in, bytes out. No files, no threads, no event loop."""
