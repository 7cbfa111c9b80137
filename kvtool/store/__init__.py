"""Blocking input and output on a store and its stubs; knows neither trio nor FUSE."""
