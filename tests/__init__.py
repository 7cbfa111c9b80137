"""kvtool's tests, demo and benchmark. `make test`, `make demo` and `make bench` run them."""
