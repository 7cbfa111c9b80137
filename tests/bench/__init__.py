"""The benchmark: kvtool beside a plain folder and beside casync, borg and restic. `make bench` runs it."""
